// Text from a file, made fit for one line of an error message.
//
// Threads: any
#pragma once

#include <string>
#include <string_view>

namespace lockstep::tokenizer {

// `text` in double quotes, cut after 64 bytes; control characters, quotes, backslashes and broken UTF-8 as \xNN.
std::string Quote(std::string_view text);

}  // namespace lockstep::tokenizer
