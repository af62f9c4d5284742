// The C interface on the host device, as a program sees it: nothing but ce.h, and of ce's own headers what shows that
// both say the same.
#include <ce/ce.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "ce/context.hpp"
#include "ce/operations.hpp"

namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr std::int64_t rows = 4, columns = 8;

ce_error_details last_details() {
  ce_error_details details = CE_ERROR_DETAILS_INIT;
  ce_last_error_details(&details);
  return details;
}

/// A context of the host device, and tensors of one small call.
class Interface : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder = std::filesystem::path(testing::TempDir()) / "ce_c_XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    // Of the default context, before there is one.
    ::setenv("CE_DEVICE", "host", 1);
    ::setenv("CE_POLICY", "lookup", 1);
    context = make_context(CE_POLICY_LOOKUP);
  }
  static void TearDownTestSuite() {
    ce_context_destroy(context);
    std::filesystem::remove_all(folder);
  }

  static ce_context* make_context(ce_policy policy) {
    const std::string database = folder + "/ce.db";
    ce_context_options options = CE_CONTEXT_OPTIONS_INIT;
    options.device = "host";
    options.database = database.c_str();
    options.policy = policy;
    ce_context* made = nullptr;
    EXPECT_EQ(ce_context_create(&options, &made), CE_STATUS_SUCCESS) << ce_last_error();
    return made;
  }

  Interface() {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 5 % 7) - 3;
    softmax.input = &logits;
    softmax.output = &output;
    cross_entropy.logits = &logits;
    cross_entropy.target = &target;
    cross_entropy.loss = &loss;
  }

  static inline std::string folder;
  static inline ce_context* context = nullptr;

  std::array<float, rows * columns> x{}, y{};
  std::array<std::int64_t, rows> targets{1, 7, -100, 0};
  float mean = 0;
  ce_tensor logits = ce_matrix(x.data(), CE_DTYPE_F32, rows, columns);
  ce_tensor output = ce_matrix(y.data(), CE_DTYPE_F32, rows, columns);
  ce_tensor target = ce_vector(targets.data(), CE_DTYPE_I64, rows);
  ce_tensor loss = ce_vector(&mean, CE_DTYPE_F32, 1);
  ce_softmax_tensors softmax = CE_SOFTMAX_TENSORS_INIT;
  ce_cross_entropy_tensors cross_entropy = CE_CROSS_ENTROPY_TENSORS_INIT;
};

TEST_F(Interface, CountsWhatItDoes) {
  ce_stats before = CE_STATS_INIT, after = CE_STATS_INIT;
  ASSERT_EQ(ce_get_stats(&before), CE_STATUS_SUCCESS);
  EXPECT_EQ(ce_softmax(nullptr, nullptr, nullptr, nullptr, nullptr), CE_STATUS_INVALID_ARGUMENT)
      << "counts nowhere";
  ASSERT_EQ(ce_get_stats(&after), CE_STATUS_SUCCESS);
  EXPECT_EQ(after.struct_size, sizeof(ce_stats));
  EXPECT_EQ(after.calls, before.calls);
  EXPECT_EQ(ce_get_stats(nullptr), CE_STATUS_INVALID_ARGUMENT);
  EXPECT_STREQ(ce_last_error(), "stats is NULL; expected an address for the counts");
}

TEST_F(Interface, IsOfTheVersionOfItsHeader) { EXPECT_STREQ(ce_version(), CE_VERSION); }

TEST_F(Interface, HasTheDefaultsOfTheCppInterface) {
  const ce::ContextOptions own;
  const ce_context_options options = CE_CONTEXT_OPTIONS_INIT;
  EXPECT_EQ(options.scratch_bytes, own.scratch_bytes);
  EXPECT_EQ(options.capture_bytes, own.capture_bytes);
  const auto expect_same = [](const auto& c, const auto& cpp) {
    EXPECT_EQ(c.struct_size, sizeof c);
    EXPECT_EQ(c.ignore_index, cpp.ignore_index);
    EXPECT_EQ(c.reduction, static_cast<ce_reduction>(cpp.reduction));
    EXPECT_EQ(c.label_smoothing, cpp.label_smoothing);
    EXPECT_EQ(c.z_loss, cpp.z_loss);
    EXPECT_EQ(c.softcap, cpp.softcap);
    EXPECT_EQ(c.logit_scale, cpp.logit_scale);
  };
  expect_same(ce_cross_entropy_options CE_CROSS_ENTROPY_OPTIONS_INIT, ce::CrossEntropy{});
  expect_same(ce_cross_entropy_backward_options CE_CROSS_ENTROPY_BACKWARD_OPTIONS_INIT,
              ce::CrossEntropyBackward{});
}

TEST_F(Interface, RunsSoftmaxAndSaysWhichKernelRan) {
  const ce_choice* choice = nullptr;
  ASSERT_EQ(ce_softmax(context, nullptr, &softmax, nullptr, &choice), CE_STATUS_SUCCESS) << ce_last_error();
  for (std::int64_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (std::int64_t i = 0; i < columns; ++i) sum += std::exp(x[row * columns + i]);
    for (std::int64_t i = 0; i < columns; ++i)
      EXPECT_NEAR(y[row * columns + i], std::exp(x[row * columns + i]) / sum, 1e-6);
  }
  EXPECT_THAT(ce_choice_config(choice), HasSubstr("warps="));
  EXPECT_EQ(ce_choice_origin(choice), CE_ORIGIN_FALLBACK);
  EXPECT_THAT(ce_choice_reason(choice), HasSubstr("lookup"));
  EXPECT_EQ(std::string(ce_choice_key(choice)).size(), 12u);
  EXPECT_EQ(ce_choice_provisional(choice), 0);
  EXPECT_EQ(ce_choice_row_us(choice), 0) << "nothing was measured";
  EXPECT_EQ(ce_choice_row_us(nullptr), 0);
  std::int32_t compiled = 0;
  EXPECT_EQ(ce_compiled(context, &compiled), CE_STATUS_SUCCESS);
  EXPECT_GE(compiled, 1);
}

TEST_F(Interface, RunsTheConfigThatAnotherRankChose) {
  const ce_choice* choice = nullptr;
  ASSERT_EQ(ce_softmax(context, nullptr, &softmax, nullptr, &choice), CE_STATUS_SUCCESS) << ce_last_error();
  const std::string key = ce_choice_key(choice), own = ce_choice_config(choice);
  for (const char* warps : {"warps=1,", "warps=2,", "warps=4,", "warps=8,"}) {
    const std::size_t at = own.find("warps="), end = own.find(',', at) + 1;
    const std::string other = own.substr(0, at) + warps + own.substr(end);
    ASSERT_EQ(ce_use(context, key.c_str(), other.c_str()), CE_STATUS_SUCCESS);
    ce_plan* plan = nullptr;
    ASSERT_EQ(ce_softmax_prepare(context, nullptr, &softmax, nullptr, &plan), CE_STATUS_SUCCESS);
    const std::string now = ce_choice_config(ce_plan_choice(plan));
    const ce_origin origin = ce_choice_origin(ce_plan_choice(plan));
    ce_plan_destroy(plan);
    if (now == own) continue;
    EXPECT_EQ(now, other);
    EXPECT_EQ(origin, CE_ORIGIN_ASSIGNED);
    EXPECT_EQ(ce_use(context, nullptr, other.c_str()), CE_STATUS_INVALID_ARGUMENT);
    return;
  }
  FAIL() << "none of four configs runs";
}

TEST_F(Interface, RunsAPlanAgainAndAgain) {
  ce_plan* plan = nullptr;
  ASSERT_EQ(ce_softmax_prepare(context, nullptr, &softmax, nullptr, &plan), CE_STATUS_SUCCESS);
  EXPECT_EQ(y[0], 0) << "prepared, not run";
  for (const float shift : {0.f, 1.f}) {
    x[0] = shift;
    y.fill(0);
    EXPECT_EQ(ce_plan_run(plan, nullptr), CE_STATUS_SUCCESS);
    float sum = 0;
    for (std::int64_t i = 0; i < columns; ++i) sum += y[static_cast<std::size_t>(i)];
    EXPECT_NEAR(sum, 1, 1e-6);
  }
  EXPECT_THAT(ce_choice_config(ce_plan_choice(plan)), HasSubstr("warps="));
  ce_plan_destroy(plan);
}

/// As ce.h says of ce_tensor, of any dtype and number of columns.
TEST_F(Interface, TakesTensorsWithoutRowsThatHaveNoData) {
  for (const ce_dtype dtype : {CE_DTYPE_F32, CE_DTYPE_F16, CE_DTYPE_BF16})
    for (const std::int64_t classes : {1, 2}) {
      const ce_tensor none = ce_matrix(nullptr, dtype, 0, classes),
                      no_target = ce_vector(nullptr, CE_DTYPE_I64, 0);
      const ce_tensor weight = ce_matrix(logits.data, dtype, classes, 1);
      softmax.input = softmax.output = &none;
      EXPECT_EQ(ce_softmax(context, nullptr, &softmax, nullptr, nullptr), CE_STATUS_SUCCESS)
          << ce_last_error();
      cross_entropy.logits = &none;
      cross_entropy.target = &no_target;
      EXPECT_EQ(ce_cross_entropy(context, nullptr, &cross_entropy, nullptr, nullptr), CE_STATUS_SUCCESS)
          << ce_last_error();
      ce_linear_cross_entropy_tensors linear = CE_LINEAR_CROSS_ENTROPY_TENSORS_INIT;
      const ce_tensor hidden = ce_matrix(nullptr, dtype, 0, 1);
      linear.hidden = &hidden;
      linear.weight = &weight;
      linear.target = &no_target;
      linear.loss = cross_entropy.loss;
      EXPECT_EQ(ce_linear_cross_entropy(context, nullptr, &linear, nullptr, nullptr), CE_STATUS_SUCCESS)
          << ce_last_error();
    }
  softmax.input = nullptr;
  EXPECT_EQ(ce_softmax(context, nullptr, &softmax, nullptr, nullptr), CE_STATUS_INVALID_ARGUMENT);
  EXPECT_THAT(ce_last_error(), StartsWith("Softmax: input is not given"));
}

/// As ce.h says of ce_tensor.columns.
TEST_F(Interface, TakesNoColumnsWhereSoftmaxHasNothingToCompute) {
  ce_tensor none = ce_matrix(nullptr, CE_DTYPE_BF16, 4, 0);
  softmax.input = softmax.output = &none;
  ce_softmax_backward_tensors gradient = CE_SOFTMAX_BACKWARD_TENSORS_INIT;
  gradient.output = gradient.output_grad = gradient.input_grad = &none;
  EXPECT_EQ(ce_softmax(context, nullptr, &softmax, nullptr, nullptr), CE_STATUS_SUCCESS) << ce_last_error();
  EXPECT_EQ(ce_softmax_backward(context, nullptr, &gradient, nullptr, nullptr), CE_STATUS_SUCCESS)
      << ce_last_error();
  ce_plan* plan = nullptr;
  ASSERT_EQ(ce_softmax_prepare(context, nullptr, &softmax, nullptr, &plan), CE_STATUS_SUCCESS)
      << ce_last_error();
  EXPECT_EQ(ce_plan_run(plan, nullptr), CE_STATUS_SUCCESS) << ce_last_error();
  ce_plan_destroy(plan);

  none.columns = -1;
  EXPECT_EQ(ce_softmax(context, nullptr, &softmax, nullptr, nullptr), CE_STATUS_INVALID_ARGUMENT);
  EXPECT_STREQ(ce_last_error(), "Softmax: input.columns is -1; expected 1 or more");
  logits.columns = 0;
  EXPECT_EQ(ce_cross_entropy(context, nullptr, &cross_entropy, nullptr, nullptr), CE_STATUS_INVALID_ARGUMENT);
  EXPECT_STREQ(ce_last_error(), "CrossEntropy: logits.columns is 0; expected 1 or more");
}

/// One row's loss in f64.
double loss_of(const float* x, std::int64_t target) {
  double sum = 0;
  for (std::int64_t i = 0; i < columns; ++i) sum += std::exp(x[i]);
  return std::log(sum) - x[target];
}

TEST_F(Interface, PassesOptionsOn) {
  ce_cross_entropy_options options = CE_CROSS_ENTROPY_OPTIONS_INIT;
  options.reduction = CE_REDUCTION_SUM;
  options.ignore_index = 7;  // and -100 is no class then
  targets[2] = 3;
  ASSERT_EQ(ce_cross_entropy(context, &options, &cross_entropy, nullptr, nullptr), CE_STATUS_SUCCESS);
  EXPECT_NEAR(mean, loss_of(&x[0], 1) + loss_of(&x[2 * columns], 3) + loss_of(&x[3 * columns], 0), 1e-5);
  ASSERT_EQ(ce_check(context, nullptr, nullptr), CE_STATUS_SUCCESS) << ce_last_error();

  using Options = ce_cross_entropy_options;
  const auto expect_refused = [&](const char* argument, const std::function<void(Options&)>& change) {
    Options wrong = CE_CROSS_ENTROPY_OPTIONS_INIT;
    change(wrong);
    EXPECT_EQ(ce_cross_entropy(context, &wrong, &cross_entropy, nullptr, nullptr),
              CE_STATUS_INVALID_ARGUMENT);
    EXPECT_STREQ(last_details().argument, argument);
    EXPECT_STREQ(last_details().operation, "CrossEntropy");
  };
  expect_refused("reduction", [](Options& o) { o.reduction = 259; });
  expect_refused("label_smoothing", [](Options& o) { o.label_smoothing = -1; });
  expect_refused("z_loss", [](Options& o) { o.z_loss = -1; });
  expect_refused("softcap", [](Options& o) { o.softcap = -1; });
  expect_refused("logit_scale", [](Options& o) { o.logit_scale = -1; });
  expect_refused("token_scaling", [](Options& o) { o.token_scaling = 17; });
  expect_refused("options.struct_size", [](Options& o) { o.struct_size = 0; });
}

/// Each field of each operation's tensors reaches the tensor of that name: what is wrong with it is said of it.
class TensorFields : public Interface {
 protected:
  template <class Tensors>
  void expect_named(const char* operation, const char* field, const ce_tensor* Tensors::*member,
                    Tensors tensors, ce_status (*call)(ce_context*, const Tensors&)) {
    ce_tensor wrong = ce_matrix(x.data(), CE_DTYPE_F32, -5, -5);
    tensors.*member = &wrong;
    EXPECT_EQ(call(context, tensors), CE_STATUS_INVALID_ARGUMENT) << operation << ' ' << field;
    const ce_error_details details = last_details();
    EXPECT_STREQ(details.operation, operation);
    EXPECT_THAT(details.argument, StartsWith(std::string(field) + ".")) << operation;
    wrong = ce_matrix(x.data(), 17, rows, columns);
    EXPECT_EQ(call(context, tensors), CE_STATUS_INVALID_ARGUMENT);
    EXPECT_EQ(last_details().argument, std::string(field) + ".dtype");
    EXPECT_STREQ(last_details().value, "17");
  }
};

TEST_F(TensorFields, OfCrossEntropy) {
  using Tensors = ce_cross_entropy_tensors;
  const auto call = [](ce_context* own, const Tensors& tensors) {
    ce_cross_entropy_options options = CE_CROSS_ENTROPY_OPTIONS_INIT;
    options.z_loss = 0.1f;
    return ce_cross_entropy(own, &options, &tensors, nullptr, nullptr);
  };
  Tensors tensors = cross_entropy;
  tensors.grad = &output;
  const std::vector<std::pair<const char*, const ce_tensor * Tensors::*>> all{
      {"logits", &Tensors::logits},
      {"target", &Tensors::target},
      {"weight", &Tensors::weight},
      {"upstream", &Tensors::upstream},
      {"loss", &Tensors::loss},
      {"grad", &Tensors::grad},
      {"z_loss_out", &Tensors::z_loss_out},
      {"lse", &Tensors::lse},
      {"argmax", &Tensors::argmax},
      {"hit", &Tensors::hit}};
  for (const auto& [field, member] : all) expect_named<Tensors>("CrossEntropy", field, member, tensors, call);
}

TEST_F(TensorFields, OfCrossEntropyBackward) {
  using Tensors = ce_cross_entropy_backward_tensors;
  const auto call = [](ce_context* own, const Tensors& tensors) {
    return ce_cross_entropy_backward(own, nullptr, &tensors, nullptr, nullptr);
  };
  std::array<float, rows> lse_values{};
  const ce_tensor lse = ce_vector(lse_values.data(), CE_DTYPE_F32, rows);
  Tensors tensors = CE_CROSS_ENTROPY_BACKWARD_TENSORS_INIT;
  tensors.logits = &logits;
  tensors.target = &target;
  tensors.lse = &lse;
  tensors.grad = &output;
  const std::vector<std::pair<const char*, const ce_tensor * Tensors::*>> all{
      {"logits", &Tensors::logits}, {"target", &Tensors::target},     {"weight", &Tensors::weight},
      {"lse", &Tensors::lse},       {"upstream", &Tensors::upstream}, {"grad", &Tensors::grad}};
  for (const auto& [field, member] : all)
    expect_named<Tensors>("CrossEntropyBackward", field, member, tensors, call);
}

TEST_F(TensorFields, OfSoftmaxAndItsKin) {
  expect_named<ce_softmax_tensors>("Softmax", "input", &ce_softmax_tensors::input, softmax,
                                   [](ce_context* own, const ce_softmax_tensors& t) {
                                     return ce_softmax(own, nullptr, &t, nullptr, nullptr);
                                   });
  expect_named<ce_softmax_tensors>("Softmax", "output", &ce_softmax_tensors::output, softmax,
                                   [](ce_context* own, const ce_softmax_tensors& t) {
                                     return ce_softmax(own, nullptr, &t, nullptr, nullptr);
                                   });

  using Log = ce_log_softmax_tensors;
  Log log = CE_LOG_SOFTMAX_TENSORS_INIT;
  log.input = &logits;
  log.output = &output;
  for (const auto& [field, member] : std::vector<std::pair<const char*, const ce_tensor * Log::*>>{
           {"input", &Log::input}, {"output", &Log::output}})
    expect_named<Log>("LogSoftmax", field, member, log, [](ce_context* own, const Log& t) {
      return ce_log_softmax(own, nullptr, &t, nullptr, nullptr);
    });

  using Back = ce_softmax_backward_tensors;
  Back back = CE_SOFTMAX_BACKWARD_TENSORS_INIT;
  back.output = back.output_grad = &logits;
  back.input_grad = &output;
  for (const auto& [field, member] : std::vector<std::pair<const char*, const ce_tensor * Back::*>>{
           {"output", &Back::output}, {"output_grad", &Back::output_grad}, {"input_grad", &Back::input_grad}})
    expect_named<Back>("SoftmaxBackward", field, member, back, [](ce_context* own, const Back& t) {
      return ce_softmax_backward(own, nullptr, &t, nullptr, nullptr);
    });

  using LogBack = ce_log_softmax_backward_tensors;
  LogBack log_back = CE_LOG_SOFTMAX_BACKWARD_TENSORS_INIT;
  log_back.output = log_back.output_grad = &logits;
  log_back.input_grad = &output;
  for (const auto& [field, member] : std::vector<std::pair<const char*, const ce_tensor * LogBack::*>>{
           {"output", &LogBack::output},
           {"output_grad", &LogBack::output_grad},
           {"input_grad", &LogBack::input_grad}})
    expect_named<LogBack>("LogSoftmaxBackward", field, member, log_back,
                          [](ce_context* own, const LogBack& t) {
                            return ce_log_softmax_backward(own, nullptr, &t, nullptr, nullptr);
                          });
}

TEST_F(TensorFields, OfATensor) {
  const auto expect_refused = [&](const char* argument, const std::function<void(ce_tensor&)>& change) {
    ce_tensor wrong = logits;
    change(wrong);
    softmax.input = &wrong;
    EXPECT_EQ(ce_softmax(context, nullptr, &softmax, nullptr, nullptr), CE_STATUS_INVALID_ARGUMENT);
    EXPECT_STREQ(last_details().argument, argument);
  };
  expect_refused("input.data", [&](ce_tensor& t) { t.data = reinterpret_cast<char*>(x.data()) + 1; });
  expect_refused("input.dtype", [](ce_tensor& t) { t.dtype = CE_DTYPE_I64; });
  expect_refused("input.dtype", [](ce_tensor& t) { t.dtype = 256; });
  expect_refused("output.rows", [](ce_tensor& t) { t.rows = rows - 1; });
  expect_refused("output.columns", [](ce_tensor& t) { t.columns = columns - 1; });
  expect_refused("input.row_stride", [](ce_tensor& t) { t.row_stride = columns - 1; });
  expect_refused("input.column_stride", [](ce_tensor& t) { t.column_stride = 0; });
  expect_refused("input.batch_rows", [](ce_tensor& t) { t.batch_rows = 3; });
  expect_refused("input.batch_stride", [](ce_tensor& t) { t.batch_stride = 1; });
}

TEST(CrossEntropyOptions, AreThoseOfTheGradientMadeFromThem) {
  ce_cross_entropy_options forward = CE_CROSS_ENTROPY_OPTIONS_INIT;
  forward.ignore_index = 3;
  forward.reduction = CE_REDUCTION_SUM;
  forward.label_smoothing = 0.1f;
  forward.z_loss = 0.2f;
  forward.softcap = 4;
  forward.logit_scale = 5;
  const auto fields = [](const auto& options) {
    const auto& [size, ignore_index, reduction, label_smoothing, z_loss, softcap, logit_scale, reserved] =
        options;
    return std::tuple(ignore_index, reduction, label_smoothing, z_loss, softcap, logit_scale, reserved);
  };
  const ce_cross_entropy_backward_options backward = ce_cross_entropy_backward_of(&forward),
                                          defaults = ce_cross_entropy_backward_of(nullptr),
                                          initial = CE_CROSS_ENTROPY_BACKWARD_OPTIONS_INIT;
  EXPECT_EQ(fields(backward), fields(forward));
  EXPECT_EQ(fields(defaults), fields(initial));
  EXPECT_EQ(backward.struct_size, sizeof backward);
}

TEST_F(Interface, RefusesWhatIsMissing) {
  EXPECT_EQ(ce_softmax(context, nullptr, nullptr, nullptr, nullptr), CE_STATUS_INVALID_ARGUMENT);
  EXPECT_STREQ(ce_last_error(),
               "Softmax: tensors is NULL; expected an address of the operation's struct of tensors");
  softmax.output = nullptr;
  const ce_choice* choice = reinterpret_cast<const ce_choice*>(&softmax);
  EXPECT_EQ(ce_softmax(context, nullptr, &softmax, nullptr, &choice), CE_STATUS_INVALID_ARGUMENT);
  EXPECT_STREQ(last_details().argument, "output");
  EXPECT_EQ(choice, nullptr);
  EXPECT_STREQ(ce_choice_config(choice), "");

  ce_plan* plan = reinterpret_cast<ce_plan*>(&softmax);
  EXPECT_EQ(ce_softmax_prepare(context, nullptr, &softmax, nullptr, &plan), CE_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(plan, nullptr);
  for (const ce_status status :
       {ce_softmax_prepare(context, nullptr, &softmax, nullptr, nullptr), ce_plan_run(nullptr, nullptr),
        ce_context_create(nullptr, nullptr), ce_memory_create(context, 1, nullptr),
        ce_memory_upload(nullptr, &softmax), ce_memory_download(nullptr, &softmax),
        ce_device_name(context, nullptr, 8), ce_compiled(context, nullptr),
        ce_batched(nullptr, CE_DTYPE_F32, 1, 1, 1, 1, 1, nullptr),
        ce_class_dimension_second(nullptr, CE_DTYPE_F32, 1, 1, 1, nullptr)})
    EXPECT_EQ(status, CE_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(ce_plan_choice(nullptr), nullptr);
  EXPECT_EQ(ce_memory_data(nullptr), nullptr);
  EXPECT_EQ(ce_memory_bytes(nullptr), 0u);
  ce_plan_destroy(nullptr);
  ce_memory_destroy(nullptr);
  ce_context_destroy(nullptr);
}

TEST_F(Interface, ReportsTargetsThatAreNoClass) {
  targets = {1, 1000, -100, -1};
  ASSERT_EQ(ce_cross_entropy(context, nullptr, &cross_entropy, nullptr, nullptr), CE_STATUS_SUCCESS);
  ce_bad_targets found = CE_BAD_TARGETS_INIT;
  EXPECT_EQ(ce_check(context, nullptr, &found), CE_STATUS_TARGET_OUT_OF_RANGE);
  EXPECT_EQ(found.count, 2);
  EXPECT_EQ(found.first_row, 1);
  EXPECT_EQ(found.has_first_target, 1);
  EXPECT_EQ(found.first_target, 1000);
  EXPECT_STREQ(last_details().operation, "CrossEntropy");

  EXPECT_EQ(ce_check(context, nullptr, &found), CE_STATUS_SUCCESS) << "each row is told once";
  EXPECT_EQ(found.count, 0);
  EXPECT_EQ(found.struct_size, sizeof found);
  ASSERT_EQ(ce_cross_entropy(context, nullptr, &cross_entropy, nullptr, nullptr), CE_STATUS_SUCCESS);
  EXPECT_EQ(ce_check_all(context, nullptr), CE_STATUS_TARGET_OUT_OF_RANGE);
  found.struct_size = 0;
  EXPECT_EQ(ce_check_all(context, &found), CE_STATUS_INVALID_ARGUMENT);
}

TEST_F(Interface, ChoosesDeviceDatabaseAndPolicy) {
  ce_context* frozen = make_context(CE_POLICY_FROZEN);
  EXPECT_EQ(ce_softmax(frozen, nullptr, &softmax, nullptr, nullptr), CE_STATUS_NOT_TUNED);
  EXPECT_THAT(last_details().problems, HasSubstr("softmax f32"));
  EXPECT_EQ(ce_stop_background(frozen), CE_STATUS_SUCCESS);
  ce_context_destroy(frozen);
  EXPECT_TRUE(std::filesystem::exists(folder + "/ce.db"));

  std::array<char, CE_DEVICE_NAME_SIZE> name{};
  EXPECT_EQ(ce_device_name(context, name.data(), name.size()), CE_STATUS_SUCCESS);
  EXPECT_STREQ(name.data(), "host");
  EXPECT_EQ(ce_device_name(context, name.data(), 4), CE_STATUS_INVALID_ARGUMENT);
  EXPECT_STREQ(last_details().expected, "5 or more");
}

TEST_F(Interface, RefusesOptionsOfAContext) {
  using Options = ce_context_options;
  const auto expect = [](ce_status status, const char* argument,
                         const std::function<void(Options&)>& change) {
    Options wrong = CE_CONTEXT_OPTIONS_INIT;
    wrong.device = "host";
    const std::string database = folder + "/other.db";
    wrong.database = database.c_str();
    change(wrong);
    ce_context* made = context;
    EXPECT_EQ(ce_context_create(&wrong, &made), status) << argument;
    EXPECT_EQ(made, nullptr);
    EXPECT_STREQ(last_details().argument, argument);
  };
  expect(CE_STATUS_INVALID_ARGUMENT, "device", [](Options& o) { o.device = "tpu"; });
  expect(CE_STATUS_INVALID_ARGUMENT, "policy", [](Options& o) { o.policy = 5; });
  expect(CE_STATUS_INVALID_ARGUMENT, "tuning_seconds", [](Options& o) { o.tuning_seconds = -2; });
  expect(CE_STATUS_INVALID_ARGUMENT, "scratch_bytes", [](Options& o) { o.scratch_bytes = -1; });
  expect(CE_STATUS_INVALID_ARGUMENT, "capture_bytes", [](Options& o) { o.capture_bytes = -1; });
  expect(CE_STATUS_INVALID_ARGUMENT, "nondeterministic_products",
         [](Options& o) { o.nondeterministic_products = 2; });
  expect(CE_STATUS_INVALID_ARGUMENT, "allocator",
         [](Options& o) { o.allocate = [](void*, std::size_t, ce_stream) -> void* { return nullptr; }; });
  expect(CE_STATUS_INVALID_ARGUMENT, "options.struct_size", [](Options& o) { o.struct_size = 8; });
  // Of a machine without a GPU unsupported, of one with fewer than that an argument that is wrong.
  ce_context_options beyond = CE_CONTEXT_OPTIONS_INIT;
  beyond.device = "cuda:99";
  ce_context* made = context;
  EXPECT_NE(ce_context_create(&beyond, &made), CE_STATUS_SUCCESS);
  EXPECT_EQ(made, nullptr);
}

/// Blocks that were given and not taken back.
struct Blocks {
  static void* allocate(void* state, std::size_t bytes, ce_stream) {
    auto& blocks = *static_cast<Blocks*>(state);
    if (bytes > blocks.most) return nullptr;
    void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    ++blocks.given;
    blocks.out.insert(memory);
    return memory;
  }
  static void release(void* state, void* memory, ce_stream) {
    EXPECT_EQ(static_cast<Blocks*>(state)->out.erase(memory), 1u);
    std::free(memory);
  }
  std::size_t most = std::size_t{1} << 40;
  int given = 0;
  std::set<void*> out;
};

TEST_F(Interface, TakesItsMemoryFromTheCallersAllocator) {
  Blocks blocks;
  const std::string database = folder + "/allocator.db";
  ce_context_options options = CE_CONTEXT_OPTIONS_INIT;
  options.device = "host";
  options.database = database.c_str();
  options.policy = CE_POLICY_LOOKUP;
  options.allocate = Blocks::allocate;
  options.release = Blocks::release;
  options.allocator_state = &blocks;
  ce_context* own = nullptr;
  ASSERT_EQ(ce_context_create(&options, &own), CE_STATUS_SUCCESS) << ce_last_error();
  EXPECT_EQ(ce_cross_entropy(own, nullptr, &cross_entropy, nullptr, nullptr), CE_STATUS_SUCCESS)
      << ce_last_error();
  EXPECT_GT(blocks.given, 0) << "workspaces";
  ce_memory* memory = nullptr;
  blocks.most = 16;
  EXPECT_EQ(ce_memory_create(own, 4096, &memory), CE_STATUS_OUT_OF_MEMORY);
  EXPECT_THAT(ce_last_error(), HasSubstr("4096 bytes"));
  ce_context_destroy(own);
  EXPECT_TRUE(blocks.out.empty());
}

TEST_F(Interface, ScalesAGradient) {
  std::array<float, 1> factor{0.5f};
  ce_tensor upstream = ce_vector(factor.data(), CE_DTYPE_F32, 1);
  const std::array<float, rows* columns> before = x;
  EXPECT_EQ(ce_scale_gradient(context, &logits, &upstream, nullptr), CE_STATUS_SUCCESS) << ce_last_error();
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(x[i], before[i] / 2);

  EXPECT_EQ(ce_scale_gradient(context, nullptr, &upstream, nullptr), CE_STATUS_INVALID_ARGUMENT);
  EXPECT_STREQ(last_details().argument, "grad");
  EXPECT_EQ(ce_scale_gradient(context, &logits, nullptr, nullptr), CE_STATUS_INVALID_ARGUMENT);
  EXPECT_STREQ(last_details().argument, "upstream");
  EXPECT_STREQ(last_details().operation, "scale_gradient");
}

TEST_F(Interface, LendsMemory) {
  ce_memory* memory = nullptr;
  ASSERT_EQ(ce_memory_create(context, sizeof x, &memory), CE_STATUS_SUCCESS);
  EXPECT_EQ(ce_memory_bytes(memory), sizeof x);
  EXPECT_NE(ce_memory_data(memory), nullptr);
  EXPECT_EQ(ce_memory_upload(memory, x.data()), CE_STATUS_SUCCESS);
  EXPECT_EQ(ce_memory_download(memory, y.data()), CE_STATUS_SUCCESS);
  EXPECT_EQ(x, y);
  EXPECT_EQ(ce_memory_upload(memory, nullptr), CE_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(ce_synchronize(context, nullptr), CE_STATUS_SUCCESS);
  ce_memory_destroy(memory);

  EXPECT_EQ(ce_memory_create(context, std::size_t{1} << 62, &memory), CE_STATUS_OUT_OF_MEMORY);
  EXPECT_EQ(memory, nullptr);
}

TEST_F(Interface, MakesViews) {
  ce_tensor view;
  ASSERT_EQ(ce_batched(x.data(), CE_DTYPE_F32, 2, 1, columns, 2 * columns, CE_CONTIGUOUS, &view),
            CE_STATUS_SUCCESS);
  EXPECT_EQ(view.rows, 2);
  EXPECT_EQ(view.batch_stride, 2 * columns);
  EXPECT_EQ(view.row_stride, CE_CONTIGUOUS);
  ASSERT_EQ(ce_class_dimension_second(x.data(), CE_DTYPE_BF16, 2, 4, 3, &view), CE_STATUS_SUCCESS);
  EXPECT_EQ(view.dtype, CE_DTYPE_BF16);
  EXPECT_EQ(view.rows, 6);
  EXPECT_EQ(view.columns, 4);
  EXPECT_EQ(view.column_stride, 3);
  EXPECT_EQ(ce_class_dimension_second(x.data(), CE_DTYPE_F32, -1, 4, 3, &view), CE_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(ce_batched(x.data(), 6, 1, 1, 1, 1, 1, &view), CE_STATUS_INVALID_ARGUMENT);
}

TEST_F(Interface, KeepsAnErrorForEachThread) {
  EXPECT_EQ(ce_plan_run(nullptr, nullptr), CE_STATUS_INVALID_ARGUMENT);
  const std::string own = ce_last_error();
  std::thread([] {
    EXPECT_STREQ(ce_last_error(), "");
    EXPECT_EQ(last_details().status, CE_STATUS_SUCCESS);
    EXPECT_EQ(ce_compiled(context, nullptr), CE_STATUS_INVALID_ARGUMENT);
    EXPECT_THAT(ce_last_error(), StartsWith("count is NULL"));
  }).join();
  EXPECT_EQ(ce_last_error(), own);
}

TEST_F(Interface, LogsIntoASink) {
  std::vector<std::string> lines;
  ASSERT_EQ(ce_set_log_sink(
                [](void* data, ce_log_level level, const char* line) {
                  if (level == CE_LOG_WARNING) static_cast<std::vector<std::string>*>(data)->push_back(line);
                },
                &lines),
            CE_STATUS_SUCCESS);
  ce_context_options options = CE_CONTEXT_OPTIONS_INIT;
  options.device = "host";
  options.database = folder.c_str();  // no file
  ce_context* made = nullptr;
  EXPECT_EQ(ce_context_create(&options, &made), CE_STATUS_SUCCESS);
  ce_context_destroy(made);
  EXPECT_EQ(ce_set_log_sink(nullptr, nullptr), CE_STATUS_SUCCESS);
  EXPECT_THAT(lines, testing::Contains(HasSubstr(folder)));
  EXPECT_EQ(ce_log_is_wanted(CE_LOG_WARNING), 1);
  EXPECT_EQ(ce_log_is_wanted(CE_LOG_DEBUG), 0);
}

TEST_F(Interface, HasADefaultContext) {
  EXPECT_EQ(ce_softmax(nullptr, nullptr, &softmax, nullptr, nullptr), CE_STATUS_SUCCESS) << ce_last_error();
  EXPECT_NE(y[0], 0);
  ce_plan* plan = nullptr;
  EXPECT_EQ(ce_softmax_prepare(nullptr, nullptr, &softmax, nullptr, &plan), CE_STATUS_SUCCESS);
  ce_plan_destroy(plan);
  EXPECT_EQ(ce_check(nullptr, nullptr, nullptr), CE_STATUS_SUCCESS);
  std::array<char, CE_DEVICE_NAME_SIZE> name{};
  EXPECT_EQ(ce_device_name(nullptr, name.data(), name.size()), CE_STATUS_SUCCESS);
  EXPECT_STREQ(name.data(), "host");
  EXPECT_EQ(ce_configure_default_context(nullptr), CE_STATUS_UNSUPPORTED);
  EXPECT_THAT(ce_last_error(), HasSubstr("already"));
}

/// A child of fork() has none yet.
TEST_F(Interface, TakesOptionsOfTheDefaultContext) {
  const pid_t child = ::fork();
  if (child == 0) {
    ce_context_options options = CE_CONTEXT_OPTIONS_INIT;
    options.policy = 99;
    if (ce_configure_default_context(&options) != CE_STATUS_INVALID_ARGUMENT) ::_exit(1);
    const std::string file = folder + "/configured.db";
    options.database = file.c_str();
    options.policy = CE_POLICY_FROZEN;
    if (ce_configure_default_context(&options) != CE_STATUS_SUCCESS) ::_exit(2);
    ::_exit(ce_softmax(nullptr, nullptr, &softmax, nullptr, nullptr) == CE_STATUS_NOT_TUNED ? 0 : 3);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(Interface, ALinearLayersCrossEntropyIsThatOfItsLogits) {
  constexpr std::int64_t tokens = rows, hidden = 3, classes = columns;
  std::array<float, tokens * hidden> states{};
  std::array<float, classes * hidden> weights{};
  std::array<float, classes> biases{};
  for (std::size_t i = 0; i < states.size(); ++i) states[i] = static_cast<float>(i * 5 % 7) / 4 - 1;
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i * 3 % 11) / 4 - 1;
  for (std::size_t i = 0; i < biases.size(); ++i) biases[i] = static_cast<float>(i) / 8;
  for (std::size_t token = 0; token < tokens; ++token)
    for (std::size_t c = 0; c < classes; ++c) {
      x[token * classes + c] = biases[c];
      for (std::size_t k = 0; k < hidden; ++k)
        x[token * classes + c] += states[token * hidden + k] * weights[c * hidden + k];
    }
  ASSERT_EQ(ce_cross_entropy(context, nullptr, &cross_entropy, nullptr, nullptr), CE_STATUS_SUCCESS)
      << ce_last_error();
  const float want = mean;

  const ce_tensor h = ce_matrix(states.data(), CE_DTYPE_F32, tokens, hidden),
                  w = ce_matrix(weights.data(), CE_DTYPE_F32, classes, hidden),
                  b = ce_vector(biases.data(), CE_DTYPE_F32, classes);
  std::array<float, classes * hidden> gradients{};
  const ce_tensor dw = ce_matrix(gradients.data(), CE_DTYPE_F32, classes, hidden);
  ce_linear_cross_entropy_tensors tensors = CE_LINEAR_CROSS_ENTROPY_TENSORS_INIT;
  tensors.hidden = &h;
  tensors.weight = &w;
  tensors.bias = &b;
  tensors.target = &target;
  tensors.loss = &loss;
  tensors.weight_grad = &dw;
  ce_linear_cross_entropy_options linear = CE_LINEAR_CROSS_ENTROPY_OPTIONS_INIT;
  linear.chunk_tokens = 3;
  ce_linear_schedule schedule = CE_LINEAR_SCHEDULE_INIT;
  ASSERT_EQ(ce_linear_cross_entropy_schedule(context, &linear, &tensors, &schedule), CE_STATUS_SUCCESS);
  EXPECT_EQ(schedule.chunks, 2);
  EXPECT_EQ(schedule.chunk_tokens, 3);
  EXPECT_GT(schedule.workspace_bytes, 0);
  mean = 0;
  const ce_choice* choice = nullptr;
  ASSERT_EQ(ce_linear_cross_entropy(context, &linear, &tensors, nullptr, &choice), CE_STATUS_SUCCESS)
      << ce_last_error();
  EXPECT_NEAR(mean, want, 1e-5);
  EXPECT_NE(choice, nullptr);
  EXPECT_TRUE(std::any_of(gradients.begin(), gradients.end(), [](float value) { return value != 0; }));

  ce_cross_entropy_options of_loss = CE_CROSS_ENTROPY_OPTIONS_INIT;
  of_loss.reduction = CE_REDUCTION_SUM;
  linear.cross_entropy = &of_loss;
  ASSERT_EQ(ce_linear_cross_entropy(context, &linear, &tensors, nullptr, nullptr), CE_STATUS_SUCCESS);
  EXPECT_NEAR(mean, want * 3, 1e-4) << "three targets count";

  mean = 0;
  linear.valid_tokens = 3;
  ASSERT_EQ(ce_linear_cross_entropy(context, &linear, &tensors, nullptr, nullptr), CE_STATUS_SUCCESS);
  EXPECT_NEAR(mean, want * 3, 1e-4) << "the others are in no product";
  linear.valid_tokens = 2;
  ASSERT_EQ(ce_linear_cross_entropy(context, &linear, &tensors, nullptr, nullptr), CE_STATUS_SUCCESS);
  EXPECT_TRUE(std::isnan(mean)) << "more tokens count";
  linear.valid_tokens = tokens + 1;
  EXPECT_EQ(ce_linear_cross_entropy(context, &linear, &tensors, nullptr, nullptr),
            CE_STATUS_INVALID_ARGUMENT);
  EXPECT_STREQ(last_details().argument, "valid_tokens");
  linear.valid_tokens = -1;

  for (const int asked : {1, 2}) {  // of f32, and no such number
    linear.exponentials = asked;
    EXPECT_EQ(ce_linear_cross_entropy(context, &linear, &tensors, nullptr, nullptr),
              CE_STATUS_INVALID_ARGUMENT);
    EXPECT_STREQ(last_details().argument, "exponentials");
  }
  linear.exponentials = 0;
  ce_linear_schedule of_logits = CE_LINEAR_SCHEDULE_INIT;
  ASSERT_EQ(ce_linear_cross_entropy_schedule(context, &linear, &tensors, &of_logits), CE_STATUS_SUCCESS);
  EXPECT_EQ(of_logits.exponentials, 0);
  linear.exponentials = -1;

  linear.logits_dtype = CE_DTYPE_F16;
  EXPECT_EQ(ce_linear_cross_entropy(context, &linear, &tensors, nullptr, nullptr),
            CE_STATUS_INVALID_ARGUMENT);
  EXPECT_STREQ(last_details().argument, "logits_dtype");
  EXPECT_EQ(ce_linear_cross_entropy_schedule(context, &linear, &tensors, nullptr),
            CE_STATUS_INVALID_ARGUMENT);
}

TEST(CInterface, NumbersThatSayYesOrNoAreZeroOrOne) {
  std::int64_t words = -1;
  ce_cross_entropy_shard_options options = CE_CROSS_ENTROPY_SHARD_OPTIONS_INIT;
  options.classes = 100;
  ASSERT_EQ(ce_cross_entropy_shard_words(&options, CE_DTYPE_BF16, 1, &words), CE_STATUS_SUCCESS);
  EXPECT_GT(words, 0);
  const auto expect_refused = [&](ce_dtype logits, std::int32_t probabilities, const char* argument,
                                  const char* expected) {
    EXPECT_EQ(ce_cross_entropy_shard_words(&options, logits, probabilities, &words),
              CE_STATUS_INVALID_ARGUMENT);
    EXPECT_STREQ(last_details().argument, argument);
    EXPECT_STREQ(last_details().expected, expected);
  };
  expect_refused(CE_DTYPE_BF16, 2, "probabilities", "0 or 1");
  expect_refused(CE_DTYPE_I32, 0, "logits", "CE_DTYPE_F32, CE_DTYPE_F16 or CE_DTYPE_BF16");
  options.lse = 5;
  expect_refused(CE_DTYPE_BF16, 0, "lse", "0 or 1");
}

}  // namespace
