#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "engine/load_tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace lockstep::cli {
namespace {

struct TokenizeFlags {
  std::string model;
  tokenizer::EncodeOptions encode;
};

// One JSON line for each line of input, split at \n only; a last line without \n counts, an empty end does not.
Status Tokenize(const TokenizeFlags& flags) {
  LS_ASSIGN_OR_RETURN(tokenizer::TokenizerSpec spec, engine::LoadTokenizerSpec(flags.model));
  auto made = tokenizer::Tokenizer::Create(std::move(spec));
  if (!made.ok()) return made.status().WithContext(flags.model);
  const tokenizer::Tokenizer& t = **made;
  std::ios::sync_with_stdio(false);
  std::string line;
  while (std::getline(std::cin, line)) {
    LS_ASSIGN_OR_RETURN(std::vector<int32_t> ids, t.Encode(line, flags.encode));
    nlohmann::ordered_json json;
    json["text"] = line;
    json["ids"] = ids;
    auto& pieces = json["pieces"] = nlohmann::ordered_json::array();
    for (int32_t id : ids) pieces.push_back(std::string(t.Piece(id)));
    json["decoded"] = t.Decode(ids, false);
    // A piece may be a part of a character: JSON shows U+FFFD there; ids and decoded are exact.
    std::cout << json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  }
  std::cout.flush();
  if (!std::cout) return Status(StatusCode::kInternal, "cannot write to standard output");
  return OkStatus();
}

}  // namespace

void AddTokenize(CLI::App& app, Action* action) {
  auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* command = app.add_subcommand("tokenize", "Token ids of each line of standard input, as JSON lines");
  command->add_option("-m,--model,--model-path", flags->model, "GGUF file; a vocabulary alone is enough")->required();
  command->add_flag("--add-special", flags->encode.add_special, "Add BOS and EOS where the file asks for them");
  command->add_flag("--parse-special", flags->encode.parse_special, "Text that spells a control token becomes it");
  command->callback([flags, action] { *action = [flags] { return Tokenize(*flags); }; });
}

}  // namespace lockstep::cli
