#pragma once
/// \file
/// Softmax and cross entropy kernels that tune themselves to the GPU and the shape.
///
/// \code
/// ce::run(ce::Softmax{}, {.input = x, .output = y}, stream);
/// ce::run(ce::CrossEntropy{.label_smoothing = 0.1f}, {.logits = x, .target = t, .loss = l, .grad = x},
///         stream);
/// \endcode

#include "ce/context.hpp"
#include "ce/dtype.hpp"
#include "ce/dtype_of.hpp"
#include "ce/error.hpp"
#include "ce/language.hpp"
#include "ce/linear.hpp"
#include "ce/log.hpp"
#include "ce/operations.hpp"
#include "ce/ranks.hpp"
#include "ce/stats.hpp"
#include "ce/tensor.hpp"
#include "ce/version.hpp"
