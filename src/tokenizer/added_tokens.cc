#include "tokenizer/added_tokens.h"

#include <fmt/format.h>

#include "tokenizer/quote.h"

namespace lockstep::tokenizer {

AddedTokens::AddedTokens() {
  root_.fill(kNone);
}

Status AddedTokens::Add(std::string_view text, int32_t id, bool is_control) {
  if (text.empty()) return OkStatus();
  if (text.size() > kMaxBytes) {
    return Unsupported(
        fmt::format("tokenizer.ggml.tokens[{}]: {}: a control or user-defined token of {} bytes; "
                    "the limit is {}",
                    id, Quote(text), text.size(), kMaxBytes));
  }
  uint32_t node = kNone;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    uint32_t next = i == 0 ? root_[byte] : Child(nodes_[node], byte);
    if (next == kNone) {
      next = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
      if (i == 0) {
        root_[byte] = next;
      } else {
        nodes_[node].edges.push_back({byte, next});
      }
    }
    node = next;
  }
  nodes_[node].id = id;
  nodes_[node].is_control = is_control;
  return OkStatus();
}

}  // namespace lockstep::tokenizer
