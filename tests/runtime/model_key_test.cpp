// A device's half of a lookup key as a model.
#include "runtime/model_key.hpp"

#include <gtest/gtest.h>

#include <string>

namespace ce::runtime {
namespace {

const std::string whole =
    "NVIDIA H200|cc=90|sm=132|l2=62914560|smem=232448/233472|regs=65536|threads=2048|mig=none";

TEST(ModelKey, IsReadBack) {
  const auto model = parse_model_key(whole);
  ASSERT_TRUE(model);
  EXPECT_EQ(model->name, "NVIDIA H200");
  EXPECT_EQ(model->capability, 90);
  EXPECT_EQ(model->multiprocessors, 132);
  EXPECT_EQ(model->l2_bytes, 62914560);
  EXPECT_EQ(model->shared_bytes_per_block, 232448);
  EXPECT_EQ(model->shared_bytes_per_multiprocessor, 233472);
  EXPECT_EQ(model->registers_per_multiprocessor, 65536);
  EXPECT_EQ(model->threads_per_multiprocessor, 2048);
  EXPECT_EQ(model->mig_slice, "");
  EXPECT_EQ(model->key(), whole);
}

TEST(ModelKey, AnotherTextIsNone) {
  const auto with = [](const std::string& part, const std::string& other) {
    std::string text = whole;
    return text.replace(text.find(part), part.size(), other);
  };
  for (const std::string& text :
       {with("cc=90", "cc=090"), with("sm=132", "sm=-132"), with("sm=132", "sm=x"), with("|l2=62914560", ""),
        whole.substr(0, whole.find("|mig")), std::string("NVIDIA H200"), std::string()})
    EXPECT_FALSE(parse_model_key(text)) << text;
}

}  // namespace
}  // namespace ce::runtime
