// A TokenizerSpec from JSON, for tests: the keys are those of the struct. Tokens may be a list, or, for a part of a
// large vocabulary, {"size": N, "tokens": {"id": "text"}}: the other ids are unused tokens with a name of their own.
//
// Errors: a test's own file is wrong: nlohmann::json throws and ends the program
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tokenizer/spec.h"

namespace lockstep::tokenizer {

inline TokenizerSpec SpecFromJson(const nlohmann::json& json) {
  TokenizerSpec spec;
  spec.model = json.value("model", "gpt2");
  spec.pre = json.at("pre");
  const auto& tokens = json.at("tokens");
  if (tokens.is_array()) {
    for (const auto& text : tokens) spec.tokens.push_back(spec.Own(text));
    json.at("token_types").get_to(spec.token_types);
  } else {
    const size_t size = tokens.at("size");
    spec.token_types.assign(size, static_cast<int32_t>(TokenType::kUnused));
    for (size_t i = 0; i < size; ++i) spec.tokens.push_back(spec.Own("<unused " + std::to_string(i) + ">"));
    for (const auto& [id, text] : tokens.at("tokens").items()) {
      spec.tokens.at(std::stoul(id)) = spec.Own(text);
      spec.token_types.at(std::stoul(id)) = static_cast<int32_t>(TokenType::kNormal);
    }
    for (const auto& [id, type] : tokens.at("types").items()) {
      spec.token_types.at(std::stoul(id)) = type;
    }
  }
  for (const auto& text : json.at("merges")) spec.merges.push_back(spec.Own(text));
  spec.bos_id = json.value("bos_id", -1);
  spec.eos_id = json.value("eos_id", -1);
  spec.unk_id = json.value("unk_id", -1);
  spec.add_bos = json.value("add_bos", false);
  spec.add_eos = json.value("add_eos", false);
  return spec;
}

}  // namespace lockstep::tokenizer
