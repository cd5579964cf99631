// Text: a string that remembers which of its bytes came from the request, and the UTF-8 steps that Python's str needs.
//
// Units:    begin, end and *_bytes in bytes; *_idx and num_chars in code points (an invalid byte counts as one)
// Requires: nothing; any bytes are accepted
// Threads:  a value; no sharing
// Cost:     one run for each change of origin, so text of one origin costs one run
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/text_part.h"

namespace lockstep::tokenizer::jinja {

class Text {
 public:
  Text() = default;
  Text(std::string bytes, bool is_input);

  const std::string& bytes() const { return bytes_; }
  bool empty() const { return bytes_.empty(); }
  size_t num_bytes() const { return bytes_.size(); }
  size_t num_runs() const { return runs_.size(); }
  // True when any byte came from the request.
  bool HasInput() const;

  void Append(const Text& other);
  void Append(std::string_view bytes, bool is_input);
  // The bytes [begin, end) with their marks; both are clamped to the text.
  Text Slice(size_t begin, size_t end) const;
  std::vector<TextPart> Parts() const;

 private:
  struct Run {
    size_t end_bytes;
    bool is_input;
  };
  void AddRun(size_t num_bytes, bool is_input);

  std::string bytes_;
  std::vector<Run> runs_;  // ascending; neighbours differ in is_input
};

// Where the code point that starts at `begin` ends. At least begin + 1, at most bytes.size().
size_t NextChar(std::string_view bytes, size_t begin);
// The start of each code point, then bytes.size().
std::vector<size_t> CharStarts(std::string_view bytes);
size_t CountChars(std::string_view bytes);
// The code point at [begin, end) as NextChar gave it; an invalid byte gives 0xDC00 + byte, which is no valid character.
uint32_t DecodeChar(std::string_view bytes, size_t begin, size_t end);
void AppendChar(uint32_t code_point, std::string* out);

// Python's str.isspace for one code point.
bool IsSpace(uint32_t code_point);
// One-to-one case mapping of ASCII, Latin, Greek and Cyrillic; other scripts and one-to-many mappings stay as they are.
uint32_t UpperChar(uint32_t code_point);
uint32_t LowerChar(uint32_t code_point);

// The same text with each code point mapped; runs keep their marks.
Text MapChars(const Text& text, uint32_t (*map)(uint32_t));

}  // namespace lockstep::tokenizer::jinja
