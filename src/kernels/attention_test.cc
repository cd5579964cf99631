// Attention against its definition in ref/, bit for bit, on every instruction set that this machine has.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/ref/kernels.h"
#include "kernels/test_util.h"

namespace lockstep::kernels {
namespace {

class AttentionKernels : public Kernels {};
INSTANTIATE_TEST_SUITE_P(Isa, AttentionKernels, testing::ValuesIn(Tables()),
                         [](const auto& info) { return std::string(info.param->name); });

// The same keys as pages, as gathered slots, and in the definition's path order; each row alone and among others that
// read fewer keys, more of them gathered.
TEST_P(AttentionKernels, AttentionEqualsTheDefinitionForPagesAndPaths) {
  for (DType kv : {DType::kF16, DType::kF32}) {
    for (int dh : {16, 64, 80, 128}) {
      for (int num_keys : {1, 15, 16, 17, 63, 64, 65, 130, 200}) {
        for (int heads : {1, 2, 3, 4, 5, 7, 8}) {
          if (dh == 128 && heads > 3) continue;
          const int bytes = kv == DType::kF16 ? 2 : 4;
          const int pages = (num_keys + kKvChunk - 1) / kKvChunk, num_rows = std::min(num_keys, 3);
          std::vector<uint8_t> page_k(pages * kKvChunk * dh * bytes), page_v(page_k.size());
          std::vector<std::vector<float>> keys, values;
          for (int j = 0; j < num_keys; ++j) {
            for (auto* side : {&page_k, &page_v}) {
              std::vector<float> row = Floats(dh);
              k.store_kv(row.data(), kv, &(*side)[j * dh * bytes], dh);
              if (kv == DType::kF16) {
                for (float& v : row) v = ref::F16ToF32(ref::F32ToF16(v));
              }
              (side == &page_k ? keys : values).push_back(row);
            }
          }
          std::vector<float> q = Floats(num_rows * heads * dh);
          std::vector<int> keys_of_row;
          std::vector<float> want;
          for (int r = 0; r < num_rows; ++r) {
            keys_of_row.push_back(r == 0 ? num_keys : std::max(1, num_keys - 20 * r));
            const int n = keys_of_row.back();
            for (int h = 0; h < heads; ++h) {
              const auto at = q.begin() + (r * heads + h) * dh;
              auto one = ref::Attention({at, at + dh}, {keys.begin(), keys.begin() + n},
                                        {values.begin(), values.begin() + n}, 0.125f);
              want.insert(want.end(), one.begin(), one.end());
            }
          }
          std::vector<const void*> linear_k, linear_v, all_k, all_v;
          for (int p = 0; p < pages; ++p) {
            linear_k.push_back(&page_k[p * kKvChunk * dh * bytes]);
            linear_v.push_back(&page_v[p * kKvChunk * dh * bytes]);
          }
          for (int j = 0; j < num_keys; ++j) {
            all_k.push_back(&page_k[j * dh * bytes]);
            all_v.push_back(&page_v[j * dh * bytes]);
          }
          for (int num_linear = 0; num_linear <= pages; ++num_linear) {
            std::vector<float> scratch(AttentionScratchElems(dh), std::nanf("")), got(q.size());
            std::vector<AttentionRow> rows;
            for (int r = 0; r < num_rows; ++r) {
              const int linear = std::min(std::max(0, num_linear - r % 2), (keys_of_row[r] + kKvChunk - 1) / kKvChunk);
              const int first = std::min(linear * kKvChunk, num_keys);
              rows.push_back({&q[r * heads * dh], &got[r * heads * dh], keys_of_row[r], linear, all_k.data() + first,
                              all_v.data() + first});
            }
            AttentionArgs args = {rows.data(),     num_rows,        heads,         dh, 0.125f, kv,
                                  linear_k.data(), linear_v.data(), scratch.data()};
            k.attention(args);
            const std::string what = "keys " + std::to_string(num_keys) + " dh " + std::to_string(dh);
            ExpectSameBits(got, want, what);
            if (HasFatalFailure()) return;
            got.assign(got.size(), -1.0f);
            args.num_rows = 1;
            for (int r = 0; r < num_rows; ++r) {
              args.rows = &rows[r];
              k.attention(args);
            }
            ExpectSameBits(got, want, what + " alone");
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels
