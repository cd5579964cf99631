#include "engine/load_tokenizer.h"

namespace lockstep::engine {
namespace {

// A key that may be absent but not of another type.
Status OptionalId(const model::GgufFile& file, std::string_view key, int32_t* id) {
  if (!file.Has(key)) return OkStatus();
  LS_ASSIGN_OR_RETURN(uint64_t value, file.GetUint(key));
  // Out of range stays out of range: the tokenizer names the key's value against the vocabulary.
  *id = value > INT32_MAX ? INT32_MAX : static_cast<int32_t>(value);
  return OkStatus();
}

Status OptionalBool(const model::GgufFile& file, std::string_view key, bool* value) {
  if (!file.Has(key)) return OkStatus();
  LS_ASSIGN_OR_RETURN(*value, file.GetBool(key));
  return OkStatus();
}

}  // namespace

Result<tokenizer::TokenizerSpec> TokenizerSpecOf(const model::GgufFile& file) {
  tokenizer::TokenizerSpec spec;
  LS_ASSIGN_OR_RETURN(spec.model, file.GetString("tokenizer.ggml.model"));
  if (file.Has("tokenizer.ggml.pre")) {
    LS_ASSIGN_OR_RETURN(spec.pre, file.GetString("tokenizer.ggml.pre"));
  }
  LS_ASSIGN_OR_RETURN(spec.tokens, file.GetStrings("tokenizer.ggml.tokens"));
  if (file.Has("tokenizer.ggml.token_type")) {
    LS_ASSIGN_OR_RETURN(spec.token_types, file.GetInts("tokenizer.ggml.token_type"));
  }
  if (file.Has("tokenizer.ggml.merges")) {
    LS_ASSIGN_OR_RETURN(spec.merges, file.GetStrings("tokenizer.ggml.merges"));
  }
  LS_RETURN_IF_ERROR(OptionalId(file, "tokenizer.ggml.bos_token_id", &spec.bos_id));
  LS_RETURN_IF_ERROR(OptionalId(file, "tokenizer.ggml.eos_token_id", &spec.eos_id));
  LS_RETURN_IF_ERROR(OptionalId(file, "tokenizer.ggml.unknown_token_id", &spec.unk_id));
  LS_RETURN_IF_ERROR(OptionalId(file, "tokenizer.ggml.eot_token_id", &spec.eot_id));
  LS_RETURN_IF_ERROR(OptionalBool(file, "tokenizer.ggml.add_bos_token", &spec.add_bos));
  LS_RETURN_IF_ERROR(OptionalBool(file, "tokenizer.ggml.add_eos_token", &spec.add_eos));
  return spec;
}

Result<tokenizer::TokenizerSpec> LoadTokenizerSpec(const std::string& path) {
  LS_ASSIGN_OR_RETURN(auto file, model::GgufFile::Open(path, model::GgufMode::kInspect));
  auto spec = TokenizerSpecOf(*file);
  if (!spec.ok()) return spec.status().WithContext(path);
  spec->owners.push_back(std::shared_ptr<const model::GgufFile>(std::move(file)));
  return spec;
}

std::string ChatTemplateOf(const model::GgufFile& file) {
  auto text = file.GetString("tokenizer.chat_template");
  return text.ok() ? *text : "";
}

}  // namespace lockstep::engine
