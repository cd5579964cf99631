#include "engine/request.h"

#include <fmt/format.h>

#include <charconv>

namespace lockstep::engine {
namespace {

struct DrafterEntry {
  const char* name;
  Drafter drafter;
  bool bench_only;
};
constexpr DrafterEntry kDrafters[] = {{"none", Drafter::kNone, false},     {"ngram", Drafter::kNgram, false},
                                      {"eagle3", Drafter::kEagle3, false}, {"draft", Drafter::kDraft, false},
                                      {"auto", Drafter::kAuto, false},     {"wrong", Drafter::kWrong, true},
                                      {"oracle", Drafter::kOracle, true},  {"random", Drafter::kRandom, true}};

}  // namespace

const char* DrafterName(Drafter drafter) {
  for (const DrafterEntry& e : kDrafters) {
    if (e.drafter == drafter) return e.name;
  }
  return "?";
}

Result<Drafter> ParseDrafter(const std::string& text, bool bench) {
  std::string known;
  for (const DrafterEntry& e : kDrafters) {
    if (e.bench_only && !bench) continue;
    if (text == e.name) return e.drafter;
    known += (known.empty() ? "" : ", ") + std::string(e.name);
  }
  return InvalidArgument(fmt::format("--spec {}: must be one of {}", text, known));
}

Result<DraftShape> ParseDraftShape(const std::string& text) {
  if (text == "auto") return DraftShape{};
  DraftShape shape;
  size_t colon = text.find(':');
  std::string kind = text.substr(0, colon);
  if (colon != std::string::npos && (kind == "chain" || kind == "tree")) {
    shape.kind = kind == "chain" ? DraftShape::Kind::kChain : DraftShape::Kind::kTree;
    const char *begin = text.data() + colon + 1, *end = text.data() + text.size();
    auto [rest, error] = std::from_chars(begin, end, shape.num_nodes);
    if (error == std::errc() && rest == end && shape.num_nodes >= 1 && shape.num_nodes <= step::kMaxTreeNodes) {
      return shape;
    }
  }
  return InvalidArgument(fmt::format("--spec-shape {}: must be auto, chain:K or tree:N with 1 to {} draft rows", text,
                                     step::kMaxTreeNodes));
}

}  // namespace lockstep::engine
