// A table for a terminal: a heading, and columns as wide as their widest cell; the first is left-aligned.
//
// Threads:  a value
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> heading) { rows_.push_back(std::move(heading)); }
  void AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string ToString() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace lockstep::cli
