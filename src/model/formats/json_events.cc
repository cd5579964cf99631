#include "model/formats/json_events.h"

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "model/formats/gguf.h"

namespace lockstep::model {
namespace {

using Json = nlohmann::json;

// Passes the library's events on, within the limits. A false return ends the parse.
class Adapter : public nlohmann::json_sax<Json> {
 public:
  Adapter(const std::string& name, const JsonLimits& limits, JsonHandler* handler)
      : name_(name), limits_(limits), handler_(handler) {}

  const Status& status() const { return status_; }

  bool null() override { return Scalar({}); }
  bool boolean(bool x) override { return Scalar({.kind = JsonScalar::Kind::kBool, .boolean = x}); }
  bool number_integer(number_integer_t x) override { return Scalar({.kind = JsonScalar::Kind::kInt, .int_ = x}); }
  bool number_unsigned(number_unsigned_t x) override { return Scalar({.kind = JsonScalar::Kind::kUint, .uint = x}); }
  bool number_float(number_float_t x, const string_t&) override {
    return Scalar({.kind = JsonScalar::Kind::kFloat, .real = x});
  }
  bool string(string_t& text) override {
    return FitsText(text) && Scalar({.kind = JsonScalar::Kind::kString, .text = std::move(text)});
  }
  bool binary(binary_t&) override { return Fail("binary data"); }  // not a part of JSON text
  bool key(string_t& text) override { return FitsText(text) && Pass(handler_->Key(std::move(text))); }
  bool start_object(size_t) override { return Open() && Pass(handler_->BeginObject()); }
  bool end_object() override { return Close() && Pass(handler_->EndObject()); }
  bool start_array(size_t) override { return Open() && Pass(handler_->BeginArray()); }
  bool end_array() override { return Close() && Pass(handler_->EndArray()); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return Fail(fmt::format("not valid JSON at byte {}", position));
  }

 private:
  bool Pass(Status status) {
    status_ = std::move(status);
    return status_.ok();
  }
  bool Fail(const std::string& what) { return Pass(CorruptFile(fmt::format("{}: {}", name_, what))); }
  bool Count() {
    return ++num_values_ <= limits_.max_values || Fail(fmt::format("more than {} JSON values", limits_.max_values));
  }
  bool Scalar(JsonScalar value) { return Count() && Pass(handler_->Scalar(std::move(value))); }
  bool Open() {
    if (++depth_ > limits_.max_depth) return Fail(fmt::format("JSON nested deeper than {}", limits_.max_depth));
    return Count();
  }
  bool Close() {
    --depth_;
    return true;
  }
  bool FitsText(const std::string& text) {
    return text.size() <= limits_.max_text_bytes ||
           Fail(fmt::format("JSON text {} of {} bytes, at most {} expected", GgufFile::Shown(text.substr(0, 16)),
                            text.size(), limits_.max_text_bytes));
  }

  const std::string& name_;
  const JsonLimits& limits_;
  JsonHandler* handler_;
  Status status_;
  int depth_ = 0;
  uint64_t num_values_ = 0;
};

}  // namespace

std::string JsonScalar::Shown() const {
  switch (kind) {
    case Kind::kNull:
      return "null";
    case Kind::kBool:
      return boolean ? "true" : "false";
    case Kind::kUint:
      return std::to_string(uint);
    case Kind::kInt:
      return std::to_string(int_);
    case Kind::kFloat:
      return fmt::format("{}", real);
    case Kind::kString:
      return '"' + GgufFile::Shown(text) + '"';
  }
  return "?";
}

Status ReadJson(std::span<const uint8_t> text, const std::string& name, const JsonLimits& limits,
                JsonHandler* handler) {
  Adapter adapter(name, limits, handler);
  const auto* begin = reinterpret_cast<const char*>(text.data());
  // The library takes a NUL for the end of the text and would ignore what follows.
  if (const void* nul = text.empty() ? nullptr : std::memchr(begin, 0, text.size())) {
    return CorruptFile(fmt::format("{}: not valid JSON at byte {}", name, static_cast<const char*>(nul) - begin + 1));
  }
  if (Json::sax_parse(begin, begin + text.size(), &adapter)) return OkStatus();
  if (!adapter.status().ok()) return adapter.status();
  return CorruptFile(fmt::format("{}: not valid JSON", name));
}

}  // namespace lockstep::model
