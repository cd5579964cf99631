#include "base/mmap_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace lockstep {

Result<std::unique_ptr<MmapFile>> MmapFile::Open(const std::string& path) {
  // Not blocking: the open of a pipe that nobody writes to would wait for ever, before anyone can see that it is a pipe.
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return NotFound(fmt::format("{}: {}", path, std::strerror(errno)));
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return CorruptFile(fmt::format("{}: not a regular file", path));
  }
  auto size_bytes = static_cast<size_t>(info.st_size);
  const void* data = nullptr;
  if (size_bytes > 0) {  // mmap refuses length 0; an empty file is a legal, empty span
    data = mmap(nullptr, size_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      int error = errno;
      close(fd);
      return OutOfMemory(fmt::format("{}: cannot map {} bytes: {}", path, size_bytes, std::strerror(error)));
    }
  }
  close(fd);
  return std::unique_ptr<MmapFile>(new MmapFile(path, static_cast<const uint8_t*>(data), size_bytes));
}

bool MmapFile::Holds(std::span<const uint8_t> part) const {
  return part.data() >= data_ && part.size() <= size_bytes_ &&
         static_cast<size_t>(part.data() - data_) <= size_bytes_ - part.size();
}

void MmapFile::Advise(std::span<const uint8_t> part, int advice) const {
  LS_CHECK(Holds(part));
  const size_t page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t begin = static_cast<size_t>(part.data() - data_) / page_bytes * page_bytes;
  const size_t end = static_cast<size_t>(part.data() - data_) + part.size();
  if (end > begin) (void)madvise(const_cast<uint8_t*>(data_) + begin, end - begin, advice);
}

void MmapFile::Fetch(std::span<const uint8_t> part) const {
#ifdef MADV_POPULATE_READ
  Advise(part, MADV_POPULATE_READ);
#else
  LS_CHECK(Holds(part));
#endif
}

void MmapFile::Drop(std::span<const uint8_t> part) const {
  // Nothing is lost: the mapping is read-only, so no page of it differs from the file. A refusal costs memory only.
  Advise(part, MADV_DONTNEED);
}

MmapFile::~MmapFile() {
  if (data_) munmap(const_cast<uint8_t*>(data_), size_bytes_);
}

}  // namespace lockstep
