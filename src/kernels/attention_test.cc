// Keys and values: what the cache keeps of them, and attention over them, bit for bit as in ref/, on every instruction set
// that this machine has.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/ref/half.h"
#include "kernels/ref/kernels.h"
#include "kernels/test_util.h"

namespace lockstep::kernels {
namespace {

class KvKernels : public Kernels {};

INSTANTIATE_TEST_SUITE_P(Isa, KvKernels, testing::ValuesIn(Tables()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST_P(KvKernels, StoredKvEqualsTheDefinition) {
  std::vector<float> x;
  for (uint32_t bits = 0; bits < 0x7f800000u; bits += 0x1357) x.push_back(std::bit_cast<float>(bits));
  for (uint32_t bits = 0x33000000u; bits < 0x38900000u; bits += 0x7ff) x.push_back(-std::bit_cast<float>(bits));
  x.resize(x.size() / 16 * 16);
  std::vector<uint16_t> got(x.size());
  k.store_kv(x.data(), DType::kF16, got.data(), static_cast<int>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(got[i], ref::F32ToF16(x[i])) << x[i];
}

TEST_P(KvKernels, StoredKvInQ8EqualsTheDefinition) {
  for (int dh : {32, 64, 96, 256}) {
    for (float span : {1e-9f, 3e-6f, 4e-6f, 1e-5f, 1e-3f, 2.0f, 1e4f, 8e6f, 9e6f, 1e30f}) {
      for (float special : {0.0f, -0.0f, 1e-40f, std::nanf(""), -std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
        std::vector<float> x = Floats(dh, span);
        x[0] = special;
        for (int i = dh - 32; i < dh; ++i) x[i] = special == 0.0f ? span * static_cast<float>(i % 8) / 8.0f : x[i];
        const std::vector<uint8_t> want = ref::StoreKv(DType::kQ8_0, x);
        ASSERT_EQ(want.size(), static_cast<size_t>(dh + dh / 16));
        std::vector<uint8_t> got(want.size() + 1, 0xa5);
        k.store_kv(x.data(), DType::kQ8_0, got.data(), dh);
        EXPECT_EQ(got.back(), 0xa5);
        got.pop_back();
        ASSERT_EQ(got, want) << "dh " << dh << " span " << span << " special " << special;
      }
    }
  }
  // Where the scale is a normal f16, every value reads back to half a step and the rounding of the scale.
  for (int i = 0; i < 2000; ++i) {
    const std::vector<float> x = Floats(32, std::ldexp(1.0f, static_cast<int>(rng() % 29) - 6));
    std::vector<uint8_t> row(34);
    k.store_kv(x.data(), DType::kQ8_0, row.data(), 32);
    const std::vector<float> back = ref::LoadKv(DType::kQ8_0, row);
    float amax = 0;
    for (float v : x) amax = std::fmax(amax, std::fabs(v));
    for (int j = 0; j < 32; ++j) ASSERT_NEAR(back[j], x[j], amax * (0.5f / 127 + 1e-3f)) << amax;
  }
}

// A fault in one key or value is seen in what reads it, and only there.
TEST_P(KvKernels, ANonFiniteKeyOrValuePoisonsTheRowsThatReadIt) {
  for (DType kv : {DType::kF16, DType::kF32, DType::kQ8_0}) {
    for (float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF, 1e38f}) {
      if (kv == DType::kF32 && bad == 1e38f) continue;
      for (int side : {0, 1}) {
        const int dh = 64, n = 70;
        std::vector<std::vector<uint8_t>> pages(4);  // k, v of two pages
        std::vector<const void*> page_k, page_v;
        for (int j = 0; j < 2 * kKvChunk; ++j) {
          for (int s : {0, 1}) {
            std::vector<float> x = Floats(dh);
            if (j == 67 && s == side) x[40] = bad;
            const std::vector<uint8_t> row = ref::StoreKv(kv, x);
            auto& page = pages[2 * (j / kKvChunk) + s];
            page.insert(page.end(), row.begin(), row.end());
          }
        }
        for (int p : {0, 1}) {
          page_k.push_back(pages[2 * p].data());
          page_v.push_back(pages[2 * p + 1].data());
        }
        std::vector<float> scratch(AttentionScratchElems(dh)), q = Floats(2 * dh), got(2 * dh);
        AttentionRow rows[] = {{q.data(), got.data(), n, 2, nullptr, nullptr},
                               {q.data() + dh, got.data() + dh, 67, 2, nullptr, nullptr}};
        k.attention({rows, 2, 1, dh, 0.125f, kv, page_k.data(), page_v.data(), scratch.data()});
        bool finite[2] = {true, true};
        for (int i = 0; i < 2 * dh; ++i) finite[i / dh] = finite[i / dh] && std::isfinite(got[i]);
        // A key of minus infinity may only get no weight, in a type that has infinities.
        if (side == 1 || std::isnan(bad) || kv == DType::kQ8_0) {
          EXPECT_FALSE(finite[0]) << DTypeName(kv) << " " << bad << " side " << side;
        }
        EXPECT_TRUE(finite[1]) << DTypeName(kv) << " " << bad << " side " << side;
      }
    }
  }
}

// The same keys as pages, as gathered slots, and in the definition's path order; each row alone and among others that
// read fewer keys, more of them gathered.
TEST_P(KvKernels, AttentionEqualsTheDefinitionForPagesAndPaths) {
  for (DType kv : {DType::kF16, DType::kF32, DType::kQ8_0}) {
    for (int dh : {16, 64, 80, 96, 128}) {
      const DTypeInfo info = GetDTypeInfo(kv);
      if (dh % static_cast<int>(info.block_elems) != 0 || (dh == 96 && kv != DType::kQ8_0)) continue;
      for (int num_keys : {1, 15, 16, 17, 63, 64, 65, 130, 200}) {
        for (int heads : {1, 2, 3, 4, 5, 7, 8}) {
          if (dh >= 96 && heads > 3) continue;
          const int row_bytes = dh / static_cast<int>(info.block_elems) * static_cast<int>(info.block_bytes);
          // Three rows read a page of f16 or f32 directly, and one alone a page of q8_0; six widen it first.
          const int pages = (num_keys + kKvChunk - 1) / kKvChunk, num_rows = std::min(num_keys, heads % 2 == 1 ? 3 : 6);
          std::vector<uint8_t> page_k(pages * kKvChunk * row_bytes, 0xff), page_v(page_k.size(), 0xff);
          std::vector<std::vector<float>> keys, values;
          for (int j = 0; j < num_keys; ++j) {
            for (auto* side : {&page_k, &page_v}) {
              std::vector<float> row = Floats(dh);
              k.store_kv(row.data(), kv, &(*side)[j * row_bytes], dh);
              (side == &page_k ? keys : values).push_back(ref::LoadKv(kv, ref::StoreKv(kv, row)));
            }
          }
          std::vector<float> q = Floats(num_rows * heads * dh);
          std::vector<int> keys_of_row;
          std::vector<float> want;
          for (int r = 0; r < num_rows; ++r) {
            keys_of_row.push_back(r == 0 ? num_keys : std::max(1, num_keys - 11 * r));
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
            linear_k.push_back(&page_k[p * kKvChunk * row_bytes]);
            linear_v.push_back(&page_v[p * kKvChunk * row_bytes]);
          }
          for (int j = 0; j < num_keys; ++j) {
            all_k.push_back(&page_k[j * row_bytes]);
            all_v.push_back(&page_v[j * row_bytes]);
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
            const std::string what =
                std::string(DTypeName(kv)) + " keys " + std::to_string(num_keys) + " dh " + std::to_string(dh);
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
            // Chunks apart, in two or more calls, and merged.
            const int row_elems = AttentionPartialElems(heads, dh);
            std::vector<float> partials(size_t(pages) * num_rows * row_elems, std::nanf(""));
            for (int r = 0; r < num_rows; ++r) rows[r].partials = &partials[size_t(r) * row_elems];
            args.rows = rows.data();
            args.num_rows = num_rows;
            args.partial_stride = int64_t{num_rows} * row_elems;
            got.assign(got.size(), -1.0f);
            for (args.chunk_begin = pages - 1; args.chunk_begin >= 0; args.chunk_begin = args.chunk_begin - 2) {
              args.chunk_end = std::min(args.chunk_begin + 2, pages);
              k.attention(args);
            }
            if (pages % 2 == 0) {
              args.chunk_begin = 0;
              args.chunk_end = 1;
              k.attention(args);
            }
            for (int r = 0; r < num_rows; ++r) {
              for (int h = 0; h < heads; ++h) {
                k.merge_attention({rows[r].partials + h * dh, rows[r].partials + heads * dh + 2 * h,
                                   args.partial_stride, (keys_of_row[r] + kKvChunk - 1) / kKvChunk, dh,
                                   &got[(r * heads + h) * dh]});
              }
            }
            ExpectSameBits(got, want, what + " chunks apart");
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels
