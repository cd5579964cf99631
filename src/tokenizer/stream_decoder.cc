#include "tokenizer/stream_decoder.h"

#include "tokenizer/unicode.h"

namespace lockstep::tokenizer {

std::string StreamDecoder::Push(int32_t id) {
  std::string text;
  if (skip_special_ && tokenizer_->IsControl(id)) return text;
  pending_ += tokenizer_->Piece(id);
  pending_.erase(0, AppendValidUtf8(pending_, &text));
  return text;
}

std::string StreamDecoder::Finish() {
  std::string text;
  if (!pending_.empty()) AppendUtf8(0xFFFD, &text);
  pending_.clear();
  return text;
}

}  // namespace lockstep::tokenizer
