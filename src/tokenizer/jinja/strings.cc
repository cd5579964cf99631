#include "tokenizer/jinja/strings.h"

#include <algorithm>
#include <cstring>

namespace lockstep::tokenizer::jinja {
namespace {

bool IsLetter(uint32_t c) {
  return UpperChar(c) != c || LowerChar(c) != c || (c >= 0xAA && c < 0x2000 && c != 0xD7 && c != 0xF7);
}

}  // namespace

size_t FindBytes(const std::string& bytes, const std::string& wanted, size_t begin) {
  if (begin > bytes.size()) return std::string::npos;
  // glibc's memmem is the two-way algorithm.
  const void* const at = memmem(bytes.data() + begin, bytes.size() - begin, wanted.data(), wanted.size());
  if (at == nullptr) return std::string::npos;
  return static_cast<size_t>(static_cast<const char*>(at) - bytes.data());
}

size_t CountPieces(const std::string& bytes, const std::string* sep) {
  size_t num_pieces = 1;
  if (sep == nullptr) {
    for (const char c : bytes) num_pieces += c <= ' ' ? 1 : 0;  // bytes of other scripts are negative
    return num_pieces;
  }
  for (size_t at = FindBytes(bytes, *sep, 0); at != std::string::npos; at = FindBytes(bytes, *sep, at + sep->size())) {
    ++num_pieces;
  }
  return num_pieces;
}

Text Strip(const Text& text, const std::string* chars, Sides sides) {
  const std::string& bytes = text.bytes();
  std::vector<uint32_t> wanted;
  if (chars != nullptr) {
    for (size_t at = 0; at < chars->size();) {
      const size_t end = NextChar(*chars, at);
      wanted.push_back(DecodeChar(*chars, at, end));
      at = end;
    }
    std::sort(wanted.begin(), wanted.end());
  }
  const auto is_cut = [&](size_t begin, size_t end) {
    const uint32_t c = DecodeChar(bytes, begin, end);
    return chars == nullptr ? IsSpace(c) : std::binary_search(wanted.begin(), wanted.end(), c);
  };
  const std::vector<size_t> starts = CharStarts(bytes);
  size_t first = 0;
  size_t last = starts.size() - 1;
  if (sides != Sides::kRight) {
    while (first < last && is_cut(starts[first], starts[first + 1])) ++first;
  }
  if (sides != Sides::kLeft) {
    while (last > first && is_cut(starts[last - 1], starts[last])) --last;
  }
  return text.Slice(starts[first], starts[last]);
}

Text Capitalize(const Text& text) {
  if (text.empty()) return text;
  const size_t end = NextChar(text.bytes(), 0);
  Text out = MapChars(text.Slice(0, end), UpperChar);
  out.Append(MapChars(text.Slice(end, text.num_bytes()), LowerChar));
  return out;
}

Text TitleMethod(const Text& text) {
  Text out;
  bool in_word = false;
  const std::string& bytes = text.bytes();
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = NextChar(bytes, at);
    out.Append(MapChars(text.Slice(at, end), in_word ? LowerChar : UpperChar));
    in_word = IsLetter(DecodeChar(bytes, at, end));
    at = end;
  }
  return out;
}

Text TitleFilter(const Text& text) {
  Text out;
  bool in_word = false;
  const std::string& bytes = text.bytes();
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = NextChar(bytes, at);
    const uint32_t c = DecodeChar(bytes, at, end);
    out.Append(MapChars(text.Slice(at, end), in_word ? LowerChar : UpperChar));
    in_word = !IsSpace(c) && c != '-' && c != '(' && c != '{' && c != '[' && c != '<';
    at = end;
  }
  return out;
}

std::optional<Text> Replace(const Text& text, const Text& from, const Text& to, int64_t count, size_t max_bytes) {
  Text out;
  const std::string& bytes = text.bytes();
  size_t begin = 0;  // of what is not copied yet
  size_t search = 0;
  for (int64_t done = 0; count < 0 || done < count; ++done) {
    if (out.num_bytes() > max_bytes) return std::nullopt;
    if (from.empty()) {
      if (search > bytes.size()) break;
      out.Append(text.Slice(begin, search));
      out.Append(to);
      begin = search;
      search = search < bytes.size() ? NextChar(bytes, search) : search + 1;
      continue;
    }
    const size_t at = FindBytes(bytes, from.bytes(), search);
    if (at == std::string::npos) break;
    out.Append(text.Slice(begin, at));
    out.Append(to);
    begin = search = at + from.num_bytes();
  }
  out.Append(text.Slice(begin, bytes.size()));
  if (out.num_bytes() > max_bytes) return std::nullopt;
  return out;
}

std::vector<Text> Split(const Text& text, const std::string* sep, int64_t max_split) {
  std::vector<Text> out;
  const std::string& bytes = text.bytes();
  const auto has_room = [&] { return max_split < 0 || static_cast<int64_t>(out.size()) < max_split; };
  if (sep != nullptr) {
    size_t begin = 0;
    while (has_room()) {
      const size_t at = FindBytes(bytes, *sep, begin);
      if (at == std::string::npos) break;
      out.push_back(text.Slice(begin, at));
      begin = at + sep->size();
    }
    out.push_back(text.Slice(begin, bytes.size()));
    return out;
  }
  const std::vector<size_t> starts = CharStarts(bytes);
  const size_t num_chars = starts.size() - 1;
  const auto is_space = [&](size_t i) { return IsSpace(DecodeChar(bytes, starts[i], starts[i + 1])); };
  for (size_t i = 0; i < num_chars;) {
    if (is_space(i)) {
      ++i;
      continue;
    }
    size_t end = i;
    if (!has_room()) {  // the rest, with the white space at its end
      out.push_back(text.Slice(starts[i], bytes.size()));
      break;
    }
    while (end < num_chars && !is_space(end)) ++end;
    out.push_back(text.Slice(starts[i], starts[end]));
    i = end;
  }
  return out;
}

std::vector<Text> SplitFromRight(const Text& text, const std::string* sep, int64_t max_split) {
  std::vector<Text> all = Split(text, sep, -1);
  // The first piece keeps the white space in front of it when the limit is met, so equality is not yet "all".
  const size_t num_free = static_cast<size_t>(max_split) + (sep != nullptr ? 1 : 0);
  if (max_split < 0 || all.size() <= num_free) return all;
  // Without a limit both directions agree, so the head is what is left of the last max_split pieces.
  std::vector<Text> out;
  size_t end = text.num_bytes();
  const std::string& bytes = text.bytes();
  for (int64_t i = 0; i < max_split; ++i) {
    if (sep != nullptr) {
      const size_t at = bytes.rfind(*sep, end - sep->size());
      out.push_back(text.Slice(at + sep->size(), end));
      end = at;
    } else {
      const Text head = Strip(text.Slice(0, end), nullptr, Sides::kRight);
      const Text& last = all[all.size() - 1 - static_cast<size_t>(i)];
      end = head.num_bytes() - last.num_bytes();
      out.push_back(last);
    }
  }
  Text head = text.Slice(0, end);
  out.push_back(sep != nullptr ? head : Strip(head, nullptr, Sides::kRight));
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<Text> SplitLines(const Text& text) {
  std::vector<Text> out;
  const std::string& bytes = text.bytes();
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    size_t end = NextChar(bytes, at);
    const uint32_t c = DecodeChar(bytes, at, end);
    const bool is_break =
        (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (is_break) {
      out.push_back(text.Slice(begin, at));
      if (c == '\r' && end < bytes.size() && bytes[end] == '\n') ++end;
      begin = end;
    }
    at = end;
  }
  if (begin < bytes.size()) out.push_back(text.Slice(begin, bytes.size()));
  return out;
}

}  // namespace lockstep::tokenizer::jinja
