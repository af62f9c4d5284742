/* Uses the C interface alone: runs a softmax on the host device and prints the version. Its argument is the database. */
#include <ce/ce.h>
#include <stdio.h>
#include <string.h>

int main(int count, char** words) {
  float row[4] = {1, -2, 3, 0.5f};
  const ce_tensor x = ce_matrix(row, CE_DTYPE_F32, 1, 4);
  ce_context_options options = CE_CONTEXT_OPTIONS_INIT;
  ce_softmax_tensors tensors = CE_SOFTMAX_TENSORS_INIT;
  ce_context* context = NULL;
  if (count != 2 || strcmp(ce_version(), CE_VERSION) != 0) return 2;
  options.device = "host";
  options.database = words[1];
  options.policy = CE_POLICY_LOOKUP;
  tensors.input = &x;
  tensors.output = &x;
  if (ce_context_create(&options, &context) != CE_STATUS_SUCCESS ||
      ce_softmax(context, NULL, &tensors, NULL, NULL) != CE_STATUS_SUCCESS) {
    fprintf(stderr, "%s\n", ce_last_error());
    return 1;
  }
  ce_context_destroy(context);
  if (!(row[0] + row[1] + row[2] + row[3] > 0.9999f && row[2] > row[0])) return 1;
  printf("%s\n", ce_version());
  return 0;
}
