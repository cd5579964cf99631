#include "tokenizer/jinja/print.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace lockstep::tokenizer::jinja {
namespace {

// Python's str.isprintable, with the unassigned code points taken as printable (their list changes each year).
bool IsPrintable(uint32_t c) {
  if (c < 0x7F) return c >= 0x20;
  if (c <= 0xA0 || c == 0xAD) return false;
  if (c >= 0xD800 && c <= 0xF8FF) return false;
  if (c >= 0x200B && c <= 0x200F) return false;
  if (c >= 0x2028 && c <= 0x202E) return false;
  if (c >= 0x2060 && c <= 0x206F) return false;
  if (c == 0xFEFF || c >= 0xE0000) return false;
  return !IsSpace(c);
}

class Printer {
 public:
  explicit Printer(size_t max_bytes) : max_bytes_(max_bytes) {}

  void Repr(const Value& v);
  void Json(const Value& v, const JsonStyle& style, size_t level);
  Result<Text> Finish(bool is_input) &&;

 private:
  bool Put(std::string_view text);
  void ReprString(const std::string& s);
  void ReprItems(const std::vector<Value>& items, const char* open, const char* close);
  void ReprEntries(const std::vector<std::pair<Value, Value>>& entries);
  void JsonString(const std::string& s, const JsonStyle& style);
  void JsonKey(const Value& key, const JsonStyle& style);
  void JsonDict(const DictObject& dict, const JsonStyle& style, size_t level);
  void Break(const JsonStyle& style, size_t level);

  size_t max_bytes_;
  size_t ns_depth_ = 0;
  std::string out_;
  Status status_;
};

bool Printer::Put(std::string_view text) {
  if (!status_.ok()) return false;
  if (out_.size() + text.size() > max_bytes_) {
    status_ = InvalidArgument(fmt::format("the text of a value is longer than {} bytes", max_bytes_));
    return false;
  }
  out_ += text;
  return true;
}

Result<Text> Printer::Finish(bool is_input) && {
  if (!status_.ok()) return status_;
  return Text(std::move(out_), is_input);
}

void Printer::ReprString(const std::string& s) {
  const bool has_single = s.find('\'') != std::string::npos;
  const char quote = has_single && s.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < s.size();) {
    const size_t end = NextChar(s, at);
    const uint32_t c = DecodeChar(s, at, end);
    if (c == static_cast<uint32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (IsPrintable(c)) {
      out.append(s, at, end - at);
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", c);
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", c);
    } else {
      out += fmt::format("\\U{:08x}", c);
    }
    at = end;
  }
  out += quote;
  Put(out);
}

void Printer::ReprItems(const std::vector<Value>& items, const char* open, const char* close) {
  Put(open);
  for (size_t i = 0; i < items.size() && status_.ok(); ++i) {
    if (i > 0) Put(", ");
    Repr(items[i]);
  }
  Put(close);
}

void Printer::ReprEntries(const std::vector<std::pair<Value, Value>>& entries) {
  Put("{");
  for (size_t i = 0; i < entries.size() && status_.ok(); ++i) {
    if (i > 0) Put(", ");
    Repr(entries[i].first);
    Put(": ");
    Repr(entries[i].second);
  }
  Put("}");
}

void Printer::Repr(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
      Put("Undefined");
      return;
    case Kind::kNone:
      Put("None");
      return;
    case Kind::kBool:
      Put(v.boolean() ? "True" : "False");
      return;
    case Kind::kInt:
      Put(fmt::format("{}", v.integer()));
      return;
    case Kind::kFloat:
      Put(FloatText(v.number()));
      return;
    case Kind::kString:
      ReprString(v.str());
      return;
    case Kind::kDict:
      ReprEntries(v.dict().entries);
      return;
    case Kind::kNamespace:
      // A namespace may hold itself; Python would recurse until it fails.
      if (++ns_depth_ > 8) {
        status_ = InvalidArgument("a namespace that holds itself cannot be printed");
        return;
      }
      Put("<Namespace ");
      ReprEntries(v.ns().attributes.entries);
      Put(">");
      --ns_depth_;
      return;
    case Kind::kLoop:
      Put(fmt::format("<LoopContext {}/{}>", v.loop().index0 + 1, v.loop().items.size()));
      return;
    case Kind::kCallable:
      Put(fmt::format("<function {}>", v.callable().name));
      return;
    case Kind::kList:
      break;
  }
  const ListObject& list = v.list();
  switch (list.kind) {
    case ListKind::kList:
      ReprItems(list.items, "[", "]");
      return;
    case ListKind::kTuple:
      ReprItems(list.items, "(", list.items.size() == 1 ? ",)" : ")");
      return;
    case ListKind::kKeys:
      ReprItems(list.items, "dict_keys([", "])");
      return;
    case ListKind::kValues:
      ReprItems(list.items, "dict_values([", "])");
      return;
    case ListKind::kItems:
      ReprItems(list.items, "dict_items([", "])");
      return;
    case ListKind::kGenerator:
      Put("<generator object>");
      return;
    case ListKind::kRange:
      Put(list.step == 1 ? fmt::format("range({}, {})", list.start, list.stop)
                         : fmt::format("range({}, {}, {})", list.start, list.stop, list.step));
      return;
  }
}

void Printer::JsonString(const std::string& s, const JsonStyle& style) {
  std::string out = "\"";
  for (size_t at = 0; at < s.size();) {
    const size_t end = NextChar(s, at);
    const uint32_t c = DecodeChar(s, at, end);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default:
        if (c >= 0x20 && (c < 0x7F || !style.ensure_ascii)) {
          out.append(s, at, end - at);
        } else if (c < 0x10000) {
          out += c == 0x7F ? std::string(1, '\x7F') : fmt::format("\\u{:04x}", c);
        } else {
          out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + (c & 0x3FF));
        }
    }
    at = end;
  }
  out += '"';
  Put(out);
}

void Printer::JsonKey(const Value& key, const JsonStyle& style) {
  switch (key.kind()) {
    case Kind::kString:
      JsonString(key.str(), style);
      return;
    case Kind::kNone:
      Put("\"null\"");
      return;
    case Kind::kBool:
      Put(key.boolean() ? "\"true\"" : "\"false\"");
      return;
    case Kind::kInt:
      Put(fmt::format("\"{}\"", key.integer()));
      return;
    case Kind::kFloat:
      Put("\"" + FloatText(key.number()) + "\"");
      return;
    default:
      status_ = InvalidArgument(fmt::format("keys must be str, int, float, bool or None, not {}", TypeName(key)));
  }
}

void Printer::Break(const JsonStyle& style, size_t level) {
  if (!style.has_indent) return;
  Put("\n");
  for (size_t i = 0; i < level && status_.ok(); ++i) Put(style.indent);
}

void Printer::JsonDict(const DictObject& dict, const JsonStyle& style, size_t level) {
  std::vector<const std::pair<Value, Value>*> entries;
  for (const auto& entry : dict.entries) entries.push_back(&entry);
  if (style.sort_keys) {
    const bool all_strings =
        std::all_of(entries.begin(), entries.end(), [](const auto* e) { return e->first.Is(Kind::kString); });
    if (!all_strings) {
      status_ = InvalidArgument("tojson(sort_keys=true) needs string keys");
      return;
    }
    std::sort(entries.begin(), entries.end(),
              [](const auto* a, const auto* b) { return a->first.str() < b->first.str(); });
  }
  Put("{");
  for (size_t i = 0; i < entries.size() && status_.ok(); ++i) {
    if (i > 0) Put(style.item_separator);
    Break(style, level + 1);
    JsonKey(entries[i]->first, style);
    Put(style.key_separator);
    Json(entries[i]->second, style, level + 1);
  }
  if (!entries.empty()) Break(style, level);
  Put("}");
}

void Printer::Json(const Value& v, const JsonStyle& style, size_t level) {
  switch (v.kind()) {
    case Kind::kNone:
      Put("null");
      return;
    case Kind::kBool:
      Put(v.boolean() ? "true" : "false");
      return;
    case Kind::kInt:
      Put(fmt::format("{}", v.integer()));
      return;
    case Kind::kFloat:
      if (std::isnan(v.number())) {
        Put("NaN");
      } else if (std::isinf(v.number())) {
        Put(v.number() > 0 ? "Infinity" : "-Infinity");
      } else {
        Put(FloatText(v.number()));
      }
      return;
    case Kind::kString:
      JsonString(v.str(), style);
      return;
    case Kind::kDict:
      JsonDict(v.dict(), style, level);
      return;
    case Kind::kList:
      if (v.list().kind == ListKind::kList || v.list().kind == ListKind::kTuple) {
        const std::vector<Value>& items = v.list().items;
        Put("[");
        for (size_t i = 0; i < items.size() && status_.ok(); ++i) {
          if (i > 0) Put(style.item_separator);
          Break(style, level + 1);
          Json(items[i], style, level + 1);
        }
        if (!items.empty()) Break(style, level);
        Put("]");
        return;
      }
      break;
    default:
      break;
  }
  if (status_.ok()) {
    status_ = InvalidArgument(fmt::format("Object of type {} is not JSON serializable", TypeName(v)));
  }
}

}  // namespace

std::string FloatText(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  // fmt switches to an exponent where Python does; it only leaves out the ".0" of whole numbers.
  std::string out = fmt::format("{}", d);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

bool HasInput(const Value& v) {
  switch (v.kind()) {
    case Kind::kInt:
    case Kind::kFloat:
      return v.scalar_is_input();
    case Kind::kString:
      return v.text().HasInput();
    case Kind::kList:
      return std::any_of(v.list().items.begin(), v.list().items.end(), HasInput);
    case Kind::kDict:
      return std::any_of(v.dict().entries.begin(), v.dict().entries.end(),
                         [](const auto& e) { return HasInput(e.first) || HasInput(e.second); });
    // A namespace may hold itself, so it is not walked; taking it as input is the safe side.
    case Kind::kNamespace:
      return true;
    default:
      return false;
  }
}

Result<Text> ToText(const Value& v, size_t max_bytes) {
  if (v.Is(Kind::kString)) return v.text();
  if (v.Is(Kind::kUndefined)) return Text();
  return ToRepr(v, max_bytes);
}

Result<Text> ToRepr(const Value& v, size_t max_bytes) {
  Printer printer(max_bytes);
  printer.Repr(v);
  return std::move(printer).Finish(HasInput(v));
}

Result<Text> ToJson(const Value& v, const JsonStyle& style, size_t max_bytes) {
  Printer printer(max_bytes);
  printer.Json(v, style, 0);
  return std::move(printer).Finish(HasInput(v));
}

}  // namespace lockstep::tokenizer::jinja
