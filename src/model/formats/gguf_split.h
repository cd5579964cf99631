// Joins the parts of a split GGUF model (name-00001-of-00003.gguf): any part leads to all of them.
//
// Units:   parts count from 1 in file names and from 0 in the key split.no
// Errors:  kNotFound     a part is missing; the text names the file and the tensor after which it was due
//          kCorruptFile  a part is cut short, belongs to another model (split.* or general.* disagree, a tensor is in
//                        two parts, the tensors do not add up), or its name is not that of its part
// Threads: one user
// Source:  the split.no, split.count and split.tensors.count keys as llama.cpp's split tool writes them
#pragma once

#include <memory>
#include <string>

#include "model/formats/gguf.h"

namespace lockstep::model {

// The pieces of ".../stem-00002-of-00003.gguf".
struct SplitName {
  std::string stem;  // with its folder
  uint32_t part = 0, count = 0;

  // False if `path` has no such ending.
  static bool Parse(const std::string& path, SplitName* out);
  std::string Path(uint32_t part_number) const;
};

class GgufSplit {
 public:
  // `opened` is the parsed part at `path`, whose split.count is `count` > 1.
  static Result<std::unique_ptr<GgufFile>> Join(const std::string& path, uint64_t count,
                                                std::unique_ptr<GgufFile> opened, GgufMode mode);
  // One file, mapped and parsed, with no regard to splits.
  static Result<std::unique_ptr<GgufFile>> OpenOne(const std::string& path, GgufMode mode);

 private:
  static Status CheckPart(const GgufFile& first, const GgufFile& part, uint32_t number);
  static Status CheckNames(const std::vector<std::unique_ptr<GgufFile>>& parts);
};

}  // namespace lockstep::model
