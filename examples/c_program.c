/* This program computes softmax and cross entropy from C on the GPU, or with `--device host` on the host device, and
 * checks the results against plain C. If your program has its own device memory and stream, it needs no ce_memory and
 * no context of its own: pass NULL for the context. */
#include <ce/ce.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { rows = 16, columns = 100 };

static void require(ce_status status) {
  if (status == CE_STATUS_SUCCESS) return;
  fprintf(stderr, "%s: %s\n", ce_status_name(status), ce_last_error());
  exit(1);
}

static ce_memory* memory_with(ce_context* context, const void* from, size_t bytes) {
  ce_memory* memory = NULL;
  require(ce_memory_create(context, bytes, &memory));
  require(ce_memory_upload(memory, from));
  return memory;
}

/* The largest difference between `got` and (softmax - subtract at the row's target) * scale. */
static double largest_error(const float* logits, const int64_t* targets, double subtract, double scale,
                            const float* got) {
  double worst = 0;
  for (int row = 0; row < rows; ++row) {
    const float* x = logits + row * columns;
    double sum = 0;
    for (int i = 0; i < columns; ++i) sum += exp((double)x[i]);
    for (int i = 0; i < columns; ++i) {
      const double want = (exp((double)x[i]) / sum - (i == targets[row] ? subtract : 0)) * scale;
      worst = fmax(worst, fabs(want - got[row * columns + i]));
    }
  }
  return worst;
}

static void print(const char* operation, const ce_choice* choice, double error) {
  printf("%-14s %s (%s)  largest error %.1e\n", operation, ce_choice_config(choice), ce_choice_reason(choice),
         error);
}

int main(int count, char** words) {
  static float logits[rows * columns], result[rows * columns], loss;
  static int64_t targets[rows];
  for (int i = 0; i < rows * columns; ++i) logits[i] = (float)((i * 37 + i / 7) % 101) / 25.f - 2.f;
  for (int row = 0; row < rows; ++row) targets[row] = row * 7 % columns;

  ce_context_options options = CE_CONTEXT_OPTIONS_INIT;
  for (int i = 1; i + 1 < count; ++i)
    if (strcmp(words[i], "--device") == 0) options.device = words[i + 1];
  ce_context* context = NULL;
  require(ce_context_create(&options, &context));

  ce_memory* x_memory = memory_with(context, logits, sizeof logits);
  ce_memory* y_memory = memory_with(context, result, sizeof result);
  ce_memory* target_memory = memory_with(context, targets, sizeof targets);
  ce_memory* loss_memory = memory_with(context, &loss, sizeof loss);
  const ce_tensor x = ce_matrix(ce_memory_data(x_memory), CE_DTYPE_F32, rows, columns);
  const ce_tensor y = ce_matrix(ce_memory_data(y_memory), CE_DTYPE_F32, rows, columns);
  const ce_tensor t = ce_vector(ce_memory_data(target_memory), CE_DTYPE_I64, rows);
  const ce_tensor l = ce_vector(ce_memory_data(loss_memory), CE_DTYPE_F32, 1);

  ce_softmax_tensors softmax = CE_SOFTMAX_TENSORS_INIT;
  softmax.input = &x;
  softmax.output = &y;
  const ce_choice* choice = NULL;
  require(ce_softmax(context, NULL, &softmax, NULL, &choice));
  require(ce_synchronize(context, NULL));
  require(ce_memory_download(y_memory, result));
  const double softmax_error = largest_error(logits, targets, 0, 1, result);
  print("softmax", choice, softmax_error);

  /* One call computes the sum of the losses and overwrites the logits with its gradient. */
  ce_cross_entropy_options sum = CE_CROSS_ENTROPY_OPTIONS_INIT;
  sum.reduction = CE_REDUCTION_SUM;
  ce_cross_entropy_tensors cross_entropy = CE_CROSS_ENTROPY_TENSORS_INIT;
  cross_entropy.logits = &x;
  cross_entropy.target = &t;
  cross_entropy.loss = &l;
  cross_entropy.grad = &x;
  require(ce_cross_entropy(context, &sum, &cross_entropy, NULL, &choice));
  require(ce_check(context, NULL, NULL));
  require(ce_memory_download(x_memory, result));
  require(ce_memory_download(loss_memory, &loss));
  const double gradient_error = largest_error(logits, targets, 1, 1, result);
  print("cross entropy", choice, gradient_error);

  char device[CE_DEVICE_NAME_SIZE];
  require(ce_device_name(context, device, sizeof device));
  const int right = softmax_error < 1e-6 && gradient_error < 1e-6;
  printf("ce %s on %s: %s; loss %.4f\n", ce_version(), device, right ? "right" : "WRONG", loss);

  ce_memory_destroy(loss_memory);
  ce_memory_destroy(target_memory);
  ce_memory_destroy(y_memory);
  ce_memory_destroy(x_memory);
  ce_context_destroy(context);
  return right ? 0 : 1;
}
