// What people type, put into the form that the parser takes; and what to say when it does not parse.
//
// Threads:  pure functions
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace lockstep::cli {

// -tp N becomes --tp N, and -ctk and -ctv their long forms; --json takes the next word as its file unless that word is a flag or is still needed as the
// command's positional argument, and is written --json=FILE or --json=- (stdout).
std::vector<std::string> NormaliseArguments(std::vector<std::string> arguments);

// One line, with the nearest known flag or command where one is close.
std::string ExplainParseError(const CLI::App& app, const std::vector<std::string>& arguments,
                              const CLI::ParseError& error);

// Letters to insert, delete, replace or swap with a neighbour.
int EditDistance(const std::string& a, const std::string& b);

}  // namespace lockstep::cli
