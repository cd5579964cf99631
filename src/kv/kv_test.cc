#include <gtest/gtest.h>

#include <cstring>

#include "base/law.h"
#include "kv/kv_store.h"
#include "kv/page_pool.h"

namespace lockstep::kv {
namespace {

TEST(PagePool, GrowsShrinksAndSaysWhatIsMissing) {
  PagePool pool(3);
  std::vector<int32_t> table, other;
  ASSERT_TRUE(pool.Grow(kKvChunk + 1, &table).ok());
  EXPECT_EQ(table.size(), 2u);
  Status status = pool.Grow(2 * kKvChunk, &other);
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  EXPECT_NE(status.message().find("2 more pages"), std::string::npos) << status.message();
  EXPECT_TRUE(other.empty());
  pool.Shrink(1, &table);
  EXPECT_EQ(table.size(), 1u);
  EXPECT_EQ(pool.num_free(), 2);
  pool.Shrink(0, &table);
  EXPECT_EQ(pool.num_free(), 3);
}

TEST(KvStore, CopySlotMovesKeysAndValuesOfEveryHead) {
  auto store = KvStore::Create({2, 3, 2, 16, DType::kF16});
  ASSERT_TRUE(store.ok()) << store.status().message();
  int32_t pages[] = {2, 0};
  auto row = [&](void* page, int slot) { return static_cast<uint16_t*>(page) + slot % kKvChunk * 16; };
  for (int head = 0; head < 2; ++head) {
    for (int i = 0; i < 16; ++i) {
      row(store->Keys(1, 0, head), kKvChunk + 3)[i] = static_cast<uint16_t>(100 * head + i);
      row(store->Values(1, 0, head), kKvChunk + 3)[i] = static_cast<uint16_t>(1000 + 100 * head + i);
    }
  }
  store->CopySlot(1, pages, kKvChunk + 3, 5);
  for (int head = 0; head < 2; ++head) {
    EXPECT_EQ(row(store->Keys(1, 2, head), 5)[7], 100 * head + 7);
    EXPECT_EQ(row(store->Values(1, 2, head), 5)[7], 1000 + 100 * head + 7);
    EXPECT_EQ(row(store->Keys(0, 2, head), 5)[7], 0);
  }
}

TEST(KvStore, AQ8RowMovesWithItsScales) {
  auto store = KvStore::Create({1, 2, 2, 64, DType::kQ8_0});
  ASSERT_TRUE(store.ok()) << store.status().message();
  ASSERT_EQ(store->row_bytes(), 64 + 2 * 2);
  const int32_t pages[] = {1, 0};
  auto row = [&](void* page, int slot) { return static_cast<uint8_t*>(page) + slot % kKvChunk * store->row_bytes(); };
  auto pattern = [](int head, bool value, int i) {
    return static_cast<uint8_t>(1 + 3 * i + 7 * head + (value ? 90 : 0));
  };
  // The last slot of one page and the first of the other: neither may write beyond its row.
  const int from = kKvChunk - 1, to = kKvChunk;
  for (int head = 0; head < 2; ++head) {
    EXPECT_EQ(static_cast<uint8_t*>(store->Values(0, 1, head)) - static_cast<uint8_t*>(store->Keys(0, 1, head)),
              kKvChunk * 68);
    for (int i = 0; i < 68; ++i) {
      row(store->Keys(0, 1, head), from)[i] = pattern(head, false, i);
      row(store->Values(0, 1, head), from)[i] = pattern(head, true, i);
    }
  }
  store->CopySlot(0, pages, from, to);
  for (int head = 0; head < 2; ++head) {
    for (int i = 0; i < 68; ++i) {
      EXPECT_EQ(row(store->Keys(0, 0, head), to)[i], pattern(head, false, i));
      EXPECT_EQ(row(store->Values(0, 0, head), to)[i], pattern(head, true, i));
    }
    EXPECT_EQ(row(store->Keys(0, 0, head), to)[68], 0);
    EXPECT_EQ(row(store->Values(0, 0, head), to)[68], 0);
  }
}

}  // namespace
}  // namespace lockstep::kv
