// tokenizer_ids SPEC.json [--parse-special] < TEXTS > IDS: the program that tools/tokenizer_compare.py drives.
//
// SPEC.json is a TokenizerSpec (tools/hf_oracle.py writes it). Each line of TEXTS is a JSON string, so that a text may
// hold newlines; each line of IDS is {"ids": [...], "decoded": "..."}.
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "golden/spec_json.h"
#include "tokenizer/tokenizer.h"

int main(int argc, char** argv) {
  using namespace lockstep::tokenizer;
  if (argc < 2) {
    std::cerr << "usage: tokenizer_ids SPEC.json [--parse-special]\n";
    return 2;
  }
  std::ifstream file(argv[1]);
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    std::cerr << argv[1] << ": not JSON\n";
    return 2;
  }
  auto tokenizer = Tokenizer::Create(SpecFromJson(json));
  if (!tokenizer.ok()) {
    std::cerr << argv[1] << ": " << tokenizer.status().message() << "\n";
    return 3;
  }
  const EncodeOptions options = {.parse_special = argc > 2 && std::string(argv[2]) == "--parse-special"};
  for (std::string line; std::getline(std::cin, line);) {
    const auto text = nlohmann::json::parse(line).get<std::string>();
    const auto ids = (*tokenizer)->Encode(text, options);
    nlohmann::json out = {{"ids", ids.value()}, {"decoded", (*tokenizer)->Decode(*ids, false)}};
    std::cout << out.dump() << "\n";
  }
  return 0;
}
