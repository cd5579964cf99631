// Finds control and user-defined tokens in a text: leftmost first, then the longest.
//
// Requires: Add before the first Find
// Errors:   kUnsupported  a token of more than kMaxBytes (it would make the search quadratic)
// Threads:  Find is const
// Cost:     text bytes * longest match, mostly one table read a byte
// Source:   Hugging Face's added vocabulary; lstrip, rstrip, single_word have no place in a GGUF
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lockstep::tokenizer {

class AddedTokens {
 public:
  static constexpr size_t kMaxBytes = 1024;

  struct Match {
    size_t begin;
    size_t end;
    int32_t id;
  };

  AddedTokens();

  // An empty text is ignored: it would match everywhere.
  Status Add(std::string_view text, int32_t id, bool is_control);

  // The first match in text[pos..]. Tokens that may not match do not hide others: at one place the longest *allowed*
  // token wins. allows(begin, end) says whether a control token may stand there; user-defined tokens always may.
  template <typename Allows>
  std::optional<Match> Find(std::string_view text, size_t pos, const Allows& allows) const {
    for (; pos < text.size(); ++pos) {
      uint32_t node = root_[static_cast<uint8_t>(text[pos])];
      std::optional<Match> best;
      for (size_t end = pos + 1; node != kNone; ++end) {
        const Node& n = nodes_[node];
        if (n.id >= 0 && (!n.is_control || allows(pos, end))) best = Match{pos, end, n.id};
        node = end < text.size() ? Child(n, static_cast<uint8_t>(text[end])) : kNone;
      }
      if (best) return best;
    }
    return std::nullopt;
  }

 private:
  static constexpr uint32_t kNone = 0xFFFFFFFF;
  struct Edge {
    uint8_t byte;
    uint32_t node;
  };
  struct Node {
    int32_t id = -1;
    bool is_control = false;
    std::vector<Edge> edges;
  };

  static uint32_t Child(const Node& node, uint8_t byte) {
    for (const Edge& edge : node.edges) {
      if (edge.byte == byte) return edge.node;
    }
    return kNone;
  }

  std::array<uint32_t, 256> root_;
  std::vector<Node> nodes_;
};

}  // namespace lockstep::tokenizer
