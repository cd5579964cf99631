#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/interrupt.h"
#include "cli/prompt.h"
#include "cli/spec_report.h"
#include "model/config.h"
#include "model/formats/weight_source.h"

namespace lockstep::cli {
namespace {

struct RunFlags {
  EngineFlags engine;
  SamplingFlags sampling;
  std::string prompt;
  bool has_prompt = false;
  int64_t max_tokens = -1;
  std::string spec = "auto";
  std::string shape = "auto";
  bool raw = false, chat = false;
};

std::string ToJson(const RunFlags& flags, const engine::Response& r) {
  nlohmann::ordered_json json;
  json["text"] = r.text;
  json["token_ids"] = r.token_ids;
  json["prompt_tokens"] = r.prompt_tokens;
  json["completion_tokens"] = r.token_ids.size();
  json["finish_reason"] = r.finish_reason;
  json["context_full"] = r.context_full;
  json["tp"] = flags.engine.tp;
  json["spec"] = flags.spec;
  json["rounds"] = r.stats.rounds;
  json["accept_length"] = r.stats.accept_length();
  json["decode_tokens_per_second"] = r.stats.decode_tokens_per_second();
  json["time_to_first_token_ms"] = r.stats.time_to_first_token_secs * 1e3;
  json.update(nlohmann::ordered_json::parse(SpecCountersJson(r.stats)));
  // Text is valid UTF-8 by construction; a stop string may still have cut a character of it.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void Summarise(const engine::Engine& engine, const engine::Response& r) {
  if (r.context_full) {
    Log(LogLevel::kInfo, fmt::format("the context of {} tokens is full; --ctx-size raises it, to {} with this model",
                                     engine.options().context, engine.source().config().context_length));
  }
  Log(LogLevel::kInfo,
      fmt::format("{} prompt tokens, {} tokens ({}), first after {:.0f} ms, then {:.1f} tokens/s; {}", r.prompt_tokens,
                  r.token_ids.size(), r.finish_reason, r.stats.time_to_first_token_secs * 1e3,
                  r.stats.decode_tokens_per_second(), SpecLine(r.stats)));
}

Status OneAnswer(const RunFlags& flags, engine::Engine& engine, engine::Request request, engine::Response* response) {
  const bool show = !flags.engine.json_only();
  if (show) {
    request.on_text = [](const std::string& text) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    };
  }
  auto generated = engine.Generate(request);
  LS_RETURN_IF_ERROR(generated.status());
  if (show) std::fputs("\n", stdout);
  std::fflush(stdout);
  *response = std::move(generated).value();
  return OkStatus();
}

Status Chat(const RunFlags& flags, engine::Engine& engine, const PromptMaker& maker, engine::Request request) {
  std::vector<ChatTurn> turns;
  fmt::print(stderr, "A chat. An empty line or Ctrl-D ends it.\n");
  std::string line;
  while (fmt::print(stderr, "> "), std::getline(std::cin, line) && !line.empty()) {
    turns.push_back({"user", line});
    LS_ASSIGN_OR_RETURN(request.prompt, maker.FromTurns(turns));
    const auto context = static_cast<size_t>(engine.options().context);
    while (request.prompt.size() >= context && turns.size() > 2) {  // forget the oldest question and its answer
      Log(LogLevel::kWarning, "the chat outgrew the context (--ctx-size): its oldest exchange is forgotten");
      turns.erase(turns.begin(), turns.begin() + 2);
      LS_ASSIGN_OR_RETURN(request.prompt, maker.FromTurns(turns));
    }
    if (request.prompt.size() >= context) {
      Log(LogLevel::kError,
          fmt::format("the message has {} tokens, the context {}: it is left out", request.prompt.size(), context));
      turns.pop_back();
      continue;
    }
    engine::Response response;
    LS_RETURN_IF_ERROR(OneAnswer(flags, engine, request, &response));
    if (flags.engine.verbose) Summarise(engine, response);
    if (response.finish_reason == "interrupted") return Status(StatusCode::kInterrupted, "interrupted");
    turns.push_back({"assistant", response.text});
  }
  if (InterruptGuard::interrupted()) return Status(StatusCode::kInterrupted, "interrupted");
  return OkStatus();
}

// A stream's iterator would take an error for the end.
Result<std::string> ReadStandardInput() {
  std::string text;
  char part[1 << 14];
  size_t count;
  errno = 0;
  while ((count = std::fread(part, 1, sizeof part, stdin)) > 0) text.append(part, count);
  if (std::ferror(stdin) != 0)
    return InvalidArgument(fmt::format("standard input: the prompt cannot be read: {}", std::strerror(errno)));
  return text;
}

Status Run(const RunFlags& flags) {
  engine::Request request;
  LS_RETURN_IF_ERROR(flags.sampling.Apply(&request));
  if (flags.max_tokens < -1) {
    return InvalidArgument(fmt::format("-n {}: must be -1 (no limit) or more", flags.max_tokens));
  }
  request.max_tokens = flags.max_tokens;
  LS_ASSIGN_OR_RETURN(request.drafter, engine::ParseDrafter(flags.spec, false));
  LS_ASSIGN_OR_RETURN(request.shape, engine::ParseDraftShape(flags.shape));
  if (request.drafter == engine::Drafter::kNone && request.shape.kind != engine::DraftShape::Kind::kAuto) {
    return InvalidArgument(fmt::format("--spec-shape {}: --spec none drafts nothing", flags.shape));
  }
  if (flags.raw && flags.chat) return InvalidArgument("--raw and --chat exclude each other");
  std::string prompt = flags.prompt;
  const bool chat_on_terminal = !flags.has_prompt && isatty(STDIN_FILENO) != 0;
  if (!flags.has_prompt && !chat_on_terminal) {
    LS_ASSIGN_OR_RETURN(prompt, ReadStandardInput());
  }
  if (chat_on_terminal && !flags.engine.json.empty()) {
    return InvalidArgument("--json needs a prompt (-p TEXT, or text on standard input): a chat has no single result");
  }
  if (chat_on_terminal && flags.raw) return InvalidArgument("--raw needs a prompt: -p TEXT, or text on standard input");

  LS_ASSIGN_OR_RETURN(auto engine, flags.engine.Load(engine::RunsModels(request.drafter)));
  LS_RETURN_IF_ERROR(SamplingFlags::CheckVocab(request.sampling, static_cast<int>(engine->source().config().vocab)));
  LS_ASSIGN_OR_RETURN(PromptMaker maker, PromptMaker::Create(*engine, flags.raw    ? PromptMode::kRaw
                                                                      : flags.chat ? PromptMode::kChat
                                                                                   : PromptMode::kAuto));
  InterruptGuard guard([raw = engine.get()] { raw->Interrupt(); });
  if (chat_on_terminal) return Chat(flags, *engine, maker, std::move(request));
  Log(LogLevel::kInfo, maker.is_chat() ? "prompt in the model's chat template (--raw for the bare text)"
                                       : "prompt as bare text (--chat for the model's chat template)");
  LS_ASSIGN_OR_RETURN(request.prompt, maker.FromText(prompt));
  engine::Response response;
  LS_RETURN_IF_ERROR(OneAnswer(flags, *engine, std::move(request), &response));
  if (flags.engine.verbose) Summarise(*engine, response);
  LS_RETURN_IF_ERROR(WriteJson(flags.engine.json, flags.engine.json.empty() ? "" : ToJson(flags, response)));
  if (response.finish_reason == "interrupted") return Status(StatusCode::kInterrupted, "interrupted");
  return OkStatus();
}

}  // namespace

void AddRun(CLI::App& app, Action* action) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* command = app.add_subcommand("run", "Answer a prompt, or chat on a terminal");
  flags->engine.AddTo(*command);
  flags->sampling.AddTo(*command);
  CLI::Option* prompt =
      command->add_option("-p,--prompt", flags->prompt, "The prompt; without it: a chat, or standard input");
  command
      ->add_option("-n,--n-predict,--predict,--steps,--max-tokens", flags->max_tokens,
                   "Tokens at most; -1: to the end of the context")
      ->capture_default_str();
  command
      ->add_option("--spec,--speculative-algorithm,--spec-type", flags->spec,
                   "Drafter: none, ngram, eagle3 (a head), draft (a model), or auto, which chooses by what pays")
      ->transform([](std::string s) { return CLI::detail::to_lower(std::move(s)); })
      ->capture_default_str();
  command->add_option("--spec-shape", flags->shape, "auto, chain:K or tree:N; a fixed shape drafts every round")
      ->transform([](std::string s) { return CLI::detail::to_lower(std::move(s)); })
      ->capture_default_str();
  flags->engine.AddSpecTo(*command);
  command->add_flag("--raw", flags->raw, "The prompt is bare text");
  command->add_flag("--chat", flags->chat, "The prompt is a user's message, in the model's chat template");
  command->callback([flags, prompt, action] {
    flags->has_prompt = prompt->count() > 0;
    *action = [flags] { return Run(*flags); };
  });
}

}  // namespace lockstep::cli
