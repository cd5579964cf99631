#include "model/formats/ggml_types.h"

namespace lockstep::model {
namespace {

GgmlType Built(uint32_t id, DType t) {
  DTypeInfo info = GetDTypeInfo(t);
  return {id, info.name, info.block_elems, info.block_bytes, t};
}

// Types without a kernel are listed with their layout all the same: `inspect` shows such files, and a row that does not
// fit the block is the more useful complaint of the two.
const GgmlType kTypes[] = {
    Built(0, DType::kF32),        Built(1, DType::kF16),        Built(2, DType::kQ4_0),
    Built(3, DType::kQ4_1),       Built(6, DType::kQ5_0),       Built(7, DType::kQ5_1),
    Built(8, DType::kQ8_0),       {9, "Q8_1", 32, 36, {}},      {10, "Q2_K", 256, 84, {}},
    {11, "Q3_K", 256, 110, {}},   Built(12, DType::kQ4_K),      Built(13, DType::kQ5_K),
    Built(14, DType::kQ6_K),      {15, "Q8_K", 256, 292, {}},   {16, "IQ2_XXS", 256, 66, {}},
    {17, "IQ2_XS", 256, 74, {}},  {18, "IQ3_XXS", 256, 98, {}}, {19, "IQ1_S", 256, 50, {}},
    {20, "IQ4_NL", 32, 18, {}},   {21, "IQ3_S", 256, 110, {}},  {22, "IQ2_S", 256, 82, {}},
    {23, "IQ4_XS", 256, 136, {}}, {24, "I8", 1, 1, {}},         {25, "I16", 1, 2, {}},
    {26, "I32", 1, 4, {}},        {27, "I64", 1, 8, {}},        {28, "F64", 1, 8, {}},
    {29, "IQ1_M", 256, 56, {}},   Built(30, DType::kBF16),      {34, "TQ1_0", 256, 54, {}},
    {35, "TQ2_0", 256, 66, {}},   {39, "MXFP4", 32, 17, {}},    {40, "NVFP4", 64, 36, {}},
};

}  // namespace

const GgmlType* FindGgmlType(uint32_t id) {
  for (const GgmlType& t : kTypes) {
    if (t.id == id) return &t;
  }
  return nullptr;
}

bool IsWithdrawnGgmlType(uint32_t id) {
  return id == 4 || id == 5 || (id >= 31 && id <= 33) || (id >= 36 && id <= 38);
}

std::string BuiltGgmlTypes() {
  std::string names;
  for (const GgmlType& t : kTypes) {
    if (t.dtype) names += (names.empty() ? "" : ", ") + std::string(t.name);
  }
  return names;
}

}  // namespace lockstep::model
