// A file mapped read-only into memory.
//
// Units:   size in bytes
// Errors:  kNotFound      the path cannot be opened (the text holds the system's reason)
//          kCorruptFile   a directory, a pipe or a device
// Threads: the mapping may be read by any thread; it stays valid until destruction. A file that another program
//          shortens meanwhile raises SIGBUS on access, as for every user of mmap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace lockstep {

class MmapFile {
 public:
  static Result<std::unique_ptr<MmapFile>> Open(const std::string& path);
  ~MmapFile();
  MmapFile(const MmapFile&) = delete;
  MmapFile& operator=(const MmapFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const uint8_t> bytes() const { return {data_, size_bytes_}; }

  // Whether `part` lies in this mapping.
  bool Holds(std::span<const uint8_t> part) const;
  // Asks for the pages of `part` at once, where reading it would ask for a few at a time. Never fails: a system that
  // cannot do it leaves it to the reading. Requires Holds(part).
  void Fetch(std::span<const uint8_t> part) const;
  // Takes the pages of `part` (all that it touches) out of this process's memory; they stay in the system's cache and
  // come back when they are read. Requires Holds(part).
  void Drop(std::span<const uint8_t> part) const;

 private:
  MmapFile(std::string path, const uint8_t* data, size_t size_bytes)
      : path_(std::move(path)), data_(data), size_bytes_(size_bytes) {}

  void Advise(std::span<const uint8_t> part, int advice) const;

  std::string path_;
  const uint8_t* data_;
  size_t size_bytes_;
};

}  // namespace lockstep
