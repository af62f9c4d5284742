#include "c/last_error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "c/guard.hpp"

namespace ce::c {
namespace {

using testing::HasSubstr;

/// What a call that throws it leaves behind.
template <class Exception>
ce_error_details after(const Exception& exception) {
  const ce_status status = guarded([&] { throw exception; });
  ce_error_details details = CE_ERROR_DETAILS_INIT;
  ce_last_error_details(&details);
  EXPECT_EQ(details.status, status);
  EXPECT_STREQ(details.message, ce_last_error());
  return details;
}

TEST(LastError, HasAStatusForEachKind) {
  const std::vector<std::pair<ErrorKind, ce_status>> all{
      {ErrorKind::invalid_argument, CE_STATUS_INVALID_ARGUMENT},
      {ErrorKind::unsupported, CE_STATUS_UNSUPPORTED},
      {ErrorKind::device, CE_STATUS_DEVICE},
      {ErrorKind::compile, CE_STATUS_COMPILE},
      {ErrorKind::database, CE_STATUS_DATABASE},
      {ErrorKind::not_found, CE_STATUS_NOT_FOUND},
      {ErrorKind::target_out_of_range, CE_STATUS_TARGET_OUT_OF_RANGE},
      {ErrorKind::verification, CE_STATUS_VERIFICATION},
      {ErrorKind::interrupted, CE_STATUS_INTERRUPTED},
  };
  for (const auto& [kind, status] : all) {
    const ce_error_details details = after(Error(kind, "text"));
    EXPECT_EQ(details.status, status) << name(kind);
    EXPECT_STREQ(details.message, "text");
    EXPECT_THAT(details.place, HasSubstr("last_error_test.cpp:")) << "where it was thrown";
    EXPECT_EQ(ce_status_name(status), name(kind));
  }
}

TEST(LastError, TellsClassesOfAKindApart) {
  EXPECT_EQ(after(OutOfMemory("cuMemAlloc(&p, 8)", 2, "out of memory")).status, CE_STATUS_OUT_OF_MEMORY);
  EXPECT_EQ(after(NotTuned("not tuned", {})).status, CE_STATUS_NOT_TUNED);
  EXPECT_EQ(after(NotFound("no such key")).status, CE_STATUS_NOT_FOUND);
}

TEST(LastError, HasThePartsOfEachClass) {
  const ce_error_details invalid = after(InvalidArgument("input.rows", "-1", "0 or more").in("Softmax"));
  EXPECT_STREQ(invalid.message, "Softmax: input.rows is -1; expected 0 or more");
  EXPECT_STREQ(invalid.operation, "Softmax");
  EXPECT_STREQ(invalid.argument, "input.rows");
  EXPECT_STREQ(invalid.value, "-1");
  EXPECT_STREQ(invalid.expected, "0 or more");
  EXPECT_STREQ(invalid.call, "") << "texts that a status does not have are empty";

  const ce_error_details device = after(DeviceError("cuCtxSynchronize()", 700, "illegal address"));
  EXPECT_STREQ(device.call, "cuCtxSynchronize()");
  EXPECT_EQ(device.code, 700);
  EXPECT_STREQ(device.argument, "") << "nothing of the error before is left";

  const ce_error_details compile = after(CompileError("softmax", "expected ;", "/tmp/softmax.cu"));
  EXPECT_STREQ(compile.log, "expected ;");
  EXPECT_STREQ(compile.source_path, "/tmp/softmax.cu");
  EXPECT_EQ(compile.code, 0);

  EXPECT_STREQ(after(NotTuned("two", {"softmax (key 1)", "cross_entropy (key 2)"})).problems,
               "softmax (key 1)\ncross_entropy (key 2)");
  EXPECT_STREQ(after(TargetOutOfRange("CrossEntropyBackward", 3, 2, 50257)).operation,
               "CrossEntropyBackward");
}

TEST(LastError, TakesExceptionsThatAreNotOfCe) {
  EXPECT_EQ(after(std::bad_alloc()).status, CE_STATUS_OUT_OF_HOST_MEMORY);
  const ce_error_details standard = after(std::logic_error("impossible"));
  EXPECT_EQ(standard.status, CE_STATUS_INTERNAL);
  EXPECT_STREQ(standard.message, "impossible");
  EXPECT_EQ(after(42).status, CE_STATUS_INTERNAL);
}

TEST(LastError, StaysWhereACallSucceeds) {
  after(NotFound("no such key"));
  EXPECT_EQ(guarded([] {}), CE_STATUS_SUCCESS);
  EXPECT_STREQ(ce_last_error(), "no such key");
}

TEST(LastError, NamesEveryStatus) {
  EXPECT_STREQ(ce_status_name(CE_STATUS_SUCCESS), "success");
  for (ce_status status = CE_STATUS_SUCCESS; status <= CE_STATUS_INTERNAL; ++status)
    EXPECT_STRNE(ce_status_name(status), "unknown status") << status;
  EXPECT_STREQ(ce_status_name(CE_STATUS_INTERNAL + 1), "unknown status");
  EXPECT_STREQ(ce_status_name(-1), "unknown status");
}

/// A program whose header knew the first three fields.
TEST(LastError, WritesNoFurtherThanTheCallerHasRoom) {
  after(NotFound("no such key"));
  ce_error_details details = CE_ERROR_DETAILS_INIT;
  details.struct_size = offsetof(ce_error_details, place);
  details.place = "untouched";
  ce_last_error_details(&details);
  EXPECT_STREQ(details.message, "no such key");
  EXPECT_STREQ(details.place, "untouched");
  ce_last_error_details(nullptr);
}

}  // namespace
}  // namespace ce::c
