#include "base/tags.hpp"

#include <gtest/gtest.h>

#include <string>

#include "ce/error.hpp"
#include "tests/environment.hpp"

namespace ce {
namespace {

TEST(Tags, AreNamesAndValues) {
  EXPECT_EQ(parse_tags("CE_TAG", "job=17"), (Tags{{"job", "17"}}));
  EXPECT_EQ(parse_tags("CE_TAG", "job=17,image=base:2.1 x=y,a.b-c_D=/"),
            (Tags{{"a.b-c_D", "/"}, {"image", "base:2.1 x=y"}, {"job", "17"}}));
  EXPECT_EQ(environment_name_of_tag("job"), "tag.job");
}

TEST(Tags, RefuseWhatIsNoTag) {
  std::string many = "a0=1";
  for (int i = 1; i < 33; ++i) many += ",a" + std::to_string(i) + "=1";
  for (const std::string& text :
       {std::string("job"), std::string("=1"), std::string("job="), std::string("job=1,"), std::string(","),
        std::string("j b=1"), std::string("job=\n"), std::string("job=a\"b"), std::string("job=1,job=2"),
        std::string(65, 'j') + "=1", "job=" + std::string(257, 'v'), many})
    try {
      static_cast<void>(parse_tags("--tag", text));
      ADD_FAILURE() << text;
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), "--tag");
    }
  EXPECT_EQ(parse_tags("--tag", many.substr(0, many.rfind(','))).size(), 32U);
}

TEST(Tags, AreThoseOfTheEnvironment) {
  const test::ScopedEnvironment unset("CE_TAG", nullptr);
  EXPECT_TRUE(tags_of_environment().empty());
  const test::ScopedEnvironment set("CE_TAG", "job=17");
  EXPECT_EQ(tags_of_environment(), (Tags{{"job", "17"}}));
  const test::ScopedEnvironment wrong("CE_TAG", "17");
  EXPECT_THROW(static_cast<void>(tags_of_environment()), InvalidArgument);
}

}  // namespace
}  // namespace ce
