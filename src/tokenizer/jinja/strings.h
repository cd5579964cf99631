// Python's string operations on marked text, shared by filters and methods.
//
// Units:    indices and counts in code points
// Threads:  any
// Cost:     one pass over the text, unless said
// Source:   CPython 3.11's str methods
#pragma once

#include <optional>
#include <vector>

#include "tokenizer/jinja/text.h"

namespace lockstep::tokenizer::jinja {

// std::string::find, in linear time on any input: a search for "aaa...b" in "aaa..." is a template's cheapest
// way to stop a server.
size_t FindBytes(const std::string& bytes, const std::string& wanted, size_t begin);
// An upper bound of the pieces that Split makes, so that they can be paid for first.
size_t CountPieces(const std::string& bytes, const std::string* sep);

enum class Sides : uint8_t { kBoth, kLeft, kRight };
// chars null: white space; else any of its code points.
Text Strip(const Text& text, const std::string* chars, Sides sides);
// First letter up, the rest down.
Text Capitalize(const Text& text);
// Each run of letters capitalised (str.title), or only what follows a space, dash or bracket (Jinja's filter).
Text TitleMethod(const Text& text);
Text TitleFilter(const Text& text);
// count < 0: all. An empty `from` matches between all characters. The result may not exceed max_bytes: then nothing.
std::optional<Text> Replace(const Text& text, const Text& from, const Text& to, int64_t count, size_t max_bytes);
// sep null: runs of white space. max_split < 0: no limit. sep must not be empty.
std::vector<Text> Split(const Text& text, const std::string* sep, int64_t max_split);
std::vector<Text> SplitFromRight(const Text& text, const std::string* sep, int64_t max_split);
std::vector<Text> SplitLines(const Text& text);

}  // namespace lockstep::tokenizer::jinja
