#include "cli/engine_flags.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string_view>
#include <utility>

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
  command.add_option("--chunked-prefill-size,--max-num-batched-tokens", prefill_chunk, "Prompt tokens a step, at most")
      ->capture_default_str();
  command.add_option("--kv-cache-dtype", kv_type, "Keys and values in the cache: f16, f32 or q8_0")->default_str("f16");
  command.add_option("--cache-type-k", key_type, "The same, also -ctk; keys and values must agree");
  command.add_option("--cache-type-v", value_type, "The same, also -ctv");
  command.add_option("--rank-mode", rank_mode, "thread or process")->capture_default_str();
  command.add_option("--json", json, "Results as JSON: alone on stdout, with FILE into the file")->type_name("[FILE]");
  command.add_flag("-v,--verbose", verbose, "Say more on stderr");
}

Result<DType> EngineFlags::KvType() const {
  constexpr std::pair<std::string_view, DType> kTypes[] = {
      {"f16", DType::kF16}, {"f32", DType::kF32}, {"q8_0", DType::kQ8_0}};
  auto parse = [&](const char* flag, const std::optional<std::string>& text, DType otherwise) -> Result<DType> {
    if (!text) return otherwise;
    for (const auto& [name, type] : kTypes) {
      if (*text == name) return type;
    }
    return InvalidArgument(fmt::format("{} {}: must be f16, f32 or q8_0", flag, *text));
  };
  LS_ASSIGN_OR_RETURN(const DType both, parse("--kv-cache-dtype", kv_type, DType::kF16));
  LS_ASSIGN_OR_RETURN(const DType keys, parse("--cache-type-k", key_type, both));
  LS_ASSIGN_OR_RETURN(const DType values, parse("--cache-type-v", value_type, both));
  if (keys == values && (!kv_type || keys == both)) return keys;
  return InvalidArgument(
      fmt::format("--cache-type-k {}, --cache-type-v {}{}: keys and values have one type here; name it "
                  "once with --kv-cache-dtype, or give both flags alike",
                  key_type.value_or("(not given)"), value_type.value_or("(not given)"),
                  kv_type ? ", --kv-cache-dtype " + *kv_type : ""));
}

Status EngineFlags::SetDrafts(engine::EngineOptions* options) const {
  for (const std::string& path : drafts) {
    const bool is_head = std::filesystem::is_directory(path);
    std::string& place = is_head ? options->draft_head : options->draft_model;
    if (path.empty()) return InvalidArgument("--draft-model: the path is empty");
    if (!place.empty()) {
      return InvalidArgument(
          fmt::format("--draft-model {}: there is {} already, {}", path, is_head ? "a head" : "a draft model", place));
    }
    place = path;
  }
  options->shipped_head = true;
  options->force_draft = force_draft;
  LS_ASSIGN_OR_RETURN(options->draft_dtype, DraftType());
  return OkStatus();
}

Result<std::optional<DType>> EngineFlags::DraftType() const {
  if (draft_type == "none") return std::optional<DType>();
  for (DType type : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
    std::string name = GetDTypeInfo(type).name;
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    if (draft_type == name) return std::optional<DType>(type);
  }
  return InvalidArgument(fmt::format("--draft-quantization {}: must be q8_0, q4_0, q4_1 or none", draft_type));
}

void EngineFlags::AddSpecTo(CLI::App& command) {
  command
      .add_option(
          "--draft-model,--speculative-draft-model-path,--speculative-draft-model,--model-draft,--spec-draft-model",
          drafts,
          "Folder of an EAGLE-3 head, or GGUF file of a smaller model; one of each may be given (default: the head "
          "that comes with Lockstep for the model, if there is one)")
      ->type_name("PATH")
      ->allow_extra_args(false);
  command
      .add_option("--draft-quantization,--speculative-draft-model-quantization", draft_type,
                  "What a head's matrices become at load: q8_0, q4_0, q4_1, or none")
      ->capture_default_str();
  command.add_flag("--force-draft", force_draft, "Use a head even if it hardly ever agrees with the model");
  command
      .add_option("--spec-max-slowdown", spec_max_slowdown_percent,
                  "Percent that a request may be slowed by the drafts of others in its steps")
      ->capture_default_str();
}

void EngineFlags::AddEmulationTo(CLI::App& command) {
  command
      .add_option(
          "--emulate-allreduce-us", emulate_all_reduce_us,
          "Microseconds that each all-reduce takes longer, by rows of the step: ROWS:US,... (linear between), or US")
      ->type_name("ROWS:US,...");
}

Result<std::unique_ptr<engine::Engine>> EngineFlags::Load(bool may_draft) const {
  engine::EngineOptions options;
  options.model_path = model;
  options.prefill_chunk = prefill_chunk;
  options.tp = tp;
  options.threads = threads;
  options.context = context;
  LS_RETURN_IF_ERROR(DraftType().status());
  if (!may_draft && !drafts.empty())
    return InvalidArgument(fmt::format("--draft-model {}: no drafter of --spec runs a model", drafts[0]));
  if (may_draft) LS_RETURN_IF_ERROR(SetDrafts(&options));
  options.spec_max_slowdown = spec_max_slowdown_percent / 100;
  options.timeout_secs = Env::Get().rank_timeout_secs;
  if (!(options.timeout_secs > 0)) {
    return InvalidArgument(kBadRankTimeout);
  }
  LS_ASSIGN_OR_RETURN(options.kv_dtype, KvType());
  if (rank_mode == "process") {
    options.process_ranks = true;
  } else if (rank_mode != "thread") {
    return InvalidArgument(fmt::format("--rank-mode {}: must be thread or process", rank_mode));
  }
  if (emulate_all_reduce_us) {
    LS_ASSIGN_OR_RETURN(options.all_reduce_delays, step::ParseAllReduceDelays(*emulate_all_reduce_us));
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
  command.add_option("-s,--seed", seed, "Of the noise; the same seed gives the same text")->capture_default_str();
  command.add_option("-l,--logit-bias", logit_bias, "TOKEN_ID+BIAS or TOKEN_ID-BIAS, repeatable")->type_name("ID+BIAS");
  command.add_option("--stop", stop, "End the text before this string, repeatable");
  command.add_flag("--ignore-eos", ignore_eos, "Go on after the end of text, to -n tokens");
}

Status SamplingFlags::CheckVocab(const step::SamplingParams& sampling, int vocab) {
  // The sampler's fields by the flags that set them.
  constexpr std::pair<std::string_view, std::string_view> kFlags[] = {
      {"temperature", "--temp"},
      {"top_k", "--top-k"},
      {"top_p", "--top-p"},
      {"min_p", "--min-p"},
      {"repetition_penalty", "--repeat-penalty"},
      {"presence_penalty", "--presence-penalty"},
      {"frequency_penalty", "--frequency-penalty"},
      {"logit_bias", "--logit-bias"},
  };
  const Status status = step::ValidateSampling(sampling, vocab);
  for (const auto& [field, flag] : kFlags) {
    const std::string_view text = status.message();
    if (text.starts_with(field) && text.substr(field.size()).starts_with(":"))
      return Status(status.code(), fmt::format("{}{}", flag, text.substr(field.size())));
  }
  return status;
}

Status SamplingFlags::Apply(engine::Request* request) const {
  request->sampling = params;
  const char* seed_end = seed.data() + seed.size();
  auto [seed_rest, seed_error] = std::from_chars(seed.data(), seed_end, request->sampling.seed);
  if (seed_error != std::errc() || seed_rest != seed_end) {
    return InvalidArgument(fmt::format("--seed {}: must be a whole number from 0 to {}", seed, ~uint64_t{0}));
  }
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
  // Before the model is loaded; which ids exist is known after it.
  return CheckVocab(request->sampling, std::numeric_limits<int>::max());
}

Status CheckJsonTarget(const std::string& target) {
  if (target.empty() || target == "-") return OkStatus();
  struct stat info {};
  if (stat(target.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    if (S_ISCHR(info.st_mode)) return OkStatus();  // /dev/null
    // A pipe's open waits for the other end, perhaps for ever.
    return InvalidArgument(
        fmt::format("--json {}: is no regular file (--json alone writes to standard output)", target));
  }
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
  // Beside the target first: a full disk must not cost the file that was there.
  struct stat info {};
  const bool device = stat(target.c_str(), &info) == 0 && S_ISCHR(info.st_mode);
  const std::string part = device ? target : target + ".part";
  errno = 0;
  std::ofstream file(part, std::ios::binary | std::ios::trunc);
  file << text << "\n";
  file.close();
  if (!file || (!device && std::rename(part.c_str(), target.c_str()) != 0)) {
    const int reason = errno;
    if (!device) std::remove(part.c_str());
    return Internal(fmt::format("--json {}: cannot be written: {}", target, std::strerror(reason)));
  }
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
