#include "engine/same_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace lockstep::engine {
namespace {

using model::GgufFile;

constexpr int32_t kNormal = 1, kUnused = 5;  // token types as GGUF numbers them

bool SameBytes(const GgufFile& a, const GgufFile& b, std::string_view key) {
  const model::GgufValue* x = a.FindValue(key);
  const model::GgufValue* y = b.FindValue(key);
  if (x == nullptr || y == nullptr) return x == y;
  return x->type == y->type && x->elem_type == y->elem_type && x->num_elems == y->num_elems &&
         std::ranges::equal(x->payload, y->payload);
}

Result<std::string> TextOf(const GgufFile& file, std::string_view key) {
  if (!file.Has(key)) return std::string();
  return file.GetString(key);
}

struct Vocabulary {
  std::vector<std::string_view> texts;
  std::vector<int32_t> types;  // empty: all normal

  int32_t type(size_t id) const { return id < types.size() ? types[id] : kNormal; }
  // Ids that stand for a text. Files pad a vocabulary to a round number, each in its own way.
  bool named(size_t id) const { return id < texts.size() && type(id) != kUnused; }
  size_t num_named() const {
    size_t end = texts.size();
    while (end > 0 && !named(end - 1)) --end;
    return end;
  }
};

Result<Vocabulary> VocabularyOf(const GgufFile& file) {
  Vocabulary v;
  LS_ASSIGN_OR_RETURN(v.texts, file.GetStrings("tokenizer.ggml.tokens"));
  if (file.Has("tokenizer.ggml.token_type")) {
    LS_ASSIGN_OR_RETURN(v.types, file.GetInts("tokenizer.ggml.token_type"));
  }
  return v;
}

std::string ShownToken(const Vocabulary& v, size_t id) {
  if (id >= v.texts.size()) return "none";
  return fmt::format("\"{}\" (type {})", GgufFile::Shown(v.texts[id]), v.type(id));
}

}  // namespace

Result<std::string> TokenizerDifference(const GgufFile& draft, const GgufFile& target) {
  if (!SameBytes(draft, target, "tokenizer.ggml.tokens") || !SameBytes(draft, target, "tokenizer.ggml.token_type")) {
    LS_ASSIGN_OR_RETURN(Vocabulary ours, VocabularyOf(draft));
    LS_ASSIGN_OR_RETURN(Vocabulary theirs, VocabularyOf(target));
    const size_t num_ours = ours.num_named(), num_theirs = theirs.num_named();
    size_t first = 0, count = 0;
    for (size_t id = 0; id < std::max(num_ours, num_theirs); ++id) {
      if (!ours.named(id) && !theirs.named(id)) continue;
      if (ours.named(id) && theirs.named(id) && ours.texts[id] == theirs.texts[id] && ours.type(id) == theirs.type(id))
        continue;
      if (count++ == 0) first = id;
    }
    if (count > 0) {
      const std::string sizes =
          num_ours == num_theirs ? "" : fmt::format("{} tokens against {}; ", num_ours, num_theirs);
      return fmt::format("{}{} differ{}, the first is token {}: {} against {}", sizes, count, count == 1 ? "s" : "",
                         first, ShownToken(ours, first), ShownToken(theirs, first));
    }
  }
  for (const char* key : {"tokenizer.ggml.model", "tokenizer.ggml.pre"}) {
    LS_ASSIGN_OR_RETURN(std::string ours, TextOf(draft, key));
    LS_ASSIGN_OR_RETURN(std::string theirs, TextOf(target, key));
    if (ours != theirs)
      return fmt::format("{} is \"{}\" against \"{}\"", key, GgufFile::Shown(ours), GgufFile::Shown(theirs));
  }
  const char* merges = "tokenizer.ggml.merges";
  if (SameBytes(draft, target, merges)) return std::string();
  std::vector<std::string_view> ours, theirs;
  if (draft.Has(merges)) {
    LS_ASSIGN_OR_RETURN(ours, draft.GetStrings(merges));
  }
  if (target.Has(merges)) {
    LS_ASSIGN_OR_RETURN(theirs, target.GetStrings(merges));
  }
  const size_t at = static_cast<size_t>(std::ranges::mismatch(ours, theirs).in1 - ours.begin());
  if (at == std::max(ours.size(), theirs.size())) return std::string();
  auto shown = [at](const std::vector<std::string_view>& all) {
    return at < all.size() ? fmt::format("\"{}\"", GgufFile::Shown(all[at])) : std::string("none");
  };
  return fmt::format("{} merges against {}; the first that differs is merge {}: {} against {}", ours.size(),
                     theirs.size(), at, shown(ours), shown(theirs));
}

}  // namespace lockstep::engine
