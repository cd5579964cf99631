#include "cli/engine_flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "base/env.h"
#include "topology/placement.h"

namespace lockstep::cli {

void EngineFlags::AddTo(CLI::App& command) {
  command.add_option("-m,--model,--model-path", model, "GGUF model file")->required();
  command.add_option("--tp,--tp-size,--tensor-parallel-size,--tp_size", tp, "Tensor-parallel ranks")
      ->capture_default_str();
  command.add_option("-t,--threads,--nthreads", threads, "Threads a rank (default: usable cores / tp)");
  command.add_option("-c,--ctx-size,--context-length,--max-model-len,--max-seq-len,--max_seq_len", context,
                     "Tokens of prompt and text together (default: the model's, at most 4096)");
  command.add_option("--chunked-prefill-size,--max-num-batched-tokens", prefill_chunk, "Prompt tokens a step")
      ->capture_default_str();
  command.add_option("--kv-cache-dtype", kv_type, "f16 or f32")->capture_default_str();
  command.add_option("--rank-mode", rank_mode, "thread or process")->capture_default_str();
  command.add_option("--json", json, "Results as JSON: alone on stdout, with FILE into the file")->type_name("[FILE]");
  command.add_flag("-v,--verbose", verbose, "Say more on stderr");
}

Result<std::unique_ptr<engine::Engine>> EngineFlags::Load() const {
  engine::EngineOptions options;
  options.model_path = model;
  options.prefill_chunk = prefill_chunk;
  options.tp = tp;
  options.threads = threads;
  options.context = context;
  options.timeout_secs = Env::Get().rank_timeout_secs;
  if (!(options.timeout_secs > 0)) {
    return InvalidArgument("LOCKSTEP_RANK_TIMEOUT: must be a number of seconds above 0 and below 1e6");
  }
  if (kv_type == "f32") {
    options.kv_dtype = DType::kF32;
  } else if (kv_type != "f16") {
    return InvalidArgument(fmt::format("--kv-cache-dtype {}: must be f16 or f32", kv_type));
  }
  if (rank_mode == "process") {
    options.process_ranks = true;
  } else if (rank_mode != "thread") {
    return InvalidArgument(fmt::format("--rank-mode {}: must be thread or process", rank_mode));
  }
  LS_RETURN_IF_ERROR(CheckJsonTarget(json));
  Progress progress;
  progress.Show("loading " + model);
  return engine::Engine::Create(options);
}

void SamplingFlags::AddTo(CLI::App& command) {
  command.add_option("--temp,--temperature", params.temperature, "0: always the likeliest token")
      ->capture_default_str();
  command.add_option("--top-k", params.top_k, "Keep the K likeliest; 0: all")->capture_default_str();
  command.add_option("--top-p", params.top_p, "Keep the likeliest up to this probability; 1: all")
      ->capture_default_str();
  command.add_option("--min-p", params.min_p, "Keep what has this share of the likeliest; 0: all")
      ->capture_default_str();
  command.add_option("--repeat-penalty,--repetition-penalty", params.repetition_penalty)->capture_default_str();
  command.add_option("--presence-penalty", params.presence_penalty)->capture_default_str();
  command.add_option("--frequency-penalty", params.frequency_penalty)->capture_default_str();
  command.add_option("-s,--seed", params.seed, "Of the noise; the same seed gives the same text")
      ->capture_default_str();
  command.add_option("-l,--logit-bias", logit_bias, "TOKEN_ID+BIAS or TOKEN_ID-BIAS, repeatable")->type_name("ID+BIAS");
  command.add_option("--stop", stop, "End the text before this string, repeatable");
  command.add_flag("--ignore-eos", ignore_eos, "Go on after the end of text, to -n tokens");
}

Status SamplingFlags::Apply(engine::Request* request) const {
  request->sampling = params;
  for (const std::string& text : logit_bias) {
    const size_t sign = text.find_first_of("+-", 1);
    int32_t token = 0;
    float bias = 0;
    bool ok = sign != std::string::npos;
    if (ok) {
      const char* middle = text.data() + sign;
      auto id = std::from_chars(text.data(), middle, token);
      const char* end = text.data() + text.size();
      auto value = std::from_chars(*middle == '+' ? middle + 1 : middle, end, bias);
      ok = id.ec == std::errc() && id.ptr == middle && value.ec == std::errc() && value.ptr == end;
    }
    if (!ok) return InvalidArgument(fmt::format("--logit-bias {}: must be TOKEN_ID+BIAS or TOKEN_ID-BIAS", text));
    request->sampling.logit_bias.emplace_back(token, bias);
  }
  request->stop_strings = stop;
  request->ignore_eos = ignore_eos;
  return OkStatus();
}

Status CheckJsonTarget(const std::string& target) {
  if (target.empty() || target == "-") return OkStatus();
  std::ifstream file(target, std::ios::binary);
  if (!file) {  // said before the work, not after it
    const size_t slash = target.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : target.substr(0, slash + 1);
    if (access(folder.c_str(), W_OK) == 0) return OkStatus();
    return InvalidArgument(fmt::format("--json {}: the folder does not exist or cannot be written to", target));
  }
  const int first = file.get();
  if (first == EOF || first == '{' || first == '[') return OkStatus();
  return InvalidArgument(fmt::format("--json {}: the file exists and is not JSON; it is left alone", target));
}

Status WriteJson(const std::string& target, const std::string& text) {
  if (target.empty()) return OkStatus();
  if (target == "-") {
    fmt::print("{}\n", text);
    return OkStatus();
  }
  LS_RETURN_IF_ERROR(CheckJsonTarget(target));
  std::ofstream file(target, std::ios::binary | std::ios::trunc);
  file << text << "\n";
  file.close();
  if (!file) return InvalidArgument(fmt::format("--json {}: cannot be written", target));
  return OkStatus();
}

Progress::Progress() : terminal_(isatty(STDERR_FILENO) != 0) {}

void Progress::Show(const std::string& text) {
  if (!terminal_) return;
  fmt::print(stderr, "\r\033[K{}", text);
  std::fflush(stderr);
  shown_ = true;
}

void Progress::Clear() {
  if (shown_) fmt::print(stderr, "\r\033[K");
  shown_ = false;
}

Progress::~Progress() {
  Clear();
}

}  // namespace lockstep::cli
