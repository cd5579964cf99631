#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tokenizer/jinja/print.h"

namespace lockstep::tokenizer::jinja {
namespace {

using Json = nlohmann::ordered_json;  // templates print tools in the order the request gave

constexpr size_t kMaxJsonDepth = 100;  // below the evaluator's limit on the depth of a value

Result<Value> Convert(const Json& json, bool is_input, size_t depth) {
  if (depth > kMaxJsonDepth) {
    return InvalidArgument(fmt::format("JSON nested deeper than {} levels", kMaxJsonDepth));
  }
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::Bool(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::Int(json.get<int64_t>(), is_input);
    case Json::value_t::number_unsigned: {
      const uint64_t u = json.get<uint64_t>();
      if (u > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return InvalidArgument(fmt::format("the integer {} in JSON does not fit 64 bits with a sign", u));
      }
      return Value::Int(static_cast<int64_t>(u), is_input);
    }
    case Json::value_t::number_float:
      return Value::Float(json.get<double>(), is_input);
    case Json::value_t::string:
      return Value::Str(json.get_ref<const std::string&>(), is_input);
    case Json::value_t::array: {
      std::vector<Value> items;
      for (const Json& item : json) {
        LS_ASSIGN_OR_RETURN(Value v, Convert(item, is_input, depth + 1));
        items.push_back(std::move(v));
      }
      return Value::List(std::move(items));
    }
    case Json::value_t::object: {
      auto dict = std::make_shared<DictObject>();
      for (const auto& [key, item] : json.items()) {
        LS_ASSIGN_OR_RETURN(Value v, Convert(item, is_input, depth + 1));
        LS_CHECK(dict->Set(Value::Str(key, is_input), std::move(v)));
      }
      return Value::Dict(std::move(dict));
    }
    default:
      return Value::None();
  }
}

}  // namespace

Result<Value> FromJson(const std::string& text, bool is_input) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return InvalidArgument("not valid JSON");
  return Convert(json, is_input, 0);
}

}  // namespace lockstep::tokenizer::jinja
