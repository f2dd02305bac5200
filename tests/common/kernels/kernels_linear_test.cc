// SPDX-License-Identifier: Apache-2.0
// The products of matrices, held bit for bit to the arithmetic of
// docs/numerics.md written down plainly, on weights before packing.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "absl/types/span.h"
#include "common/kernels/half.h"
#include "common/kernels/kernels.h"
#include "common/kernels/packing.h"
#include "tests/common/kernels/kernels_test_util.h"

namespace specwire {
namespace {

// A matrix as groups, and packed.
struct Matrix {
  Matrix(WeightForm the_form, int64_t num_outputs, int64_t num_groups)
      : form(the_form),
        outputs(num_outputs),
        groups(num_groups),
        values(static_cast<size_t>(num_outputs * num_groups)) {}

  const WeightGroup& At(int64_t output, int64_t group) const {
    return values[static_cast<size_t>(output * groups + group)];
  }

  void Pack() {
    weights.assign(
        static_cast<size_t>(PackedWeightBytes(form, outputs, groups)), 0);
    scales.assign(static_cast<size_t>(PackedScales(form, outputs, groups)), 0);
    for (int64_t o = 0; o < outputs; ++o) {
      PackOutput(form,
                 o,
                 absl::MakeConstSpan(&At(o, 0), static_cast<size_t>(groups)),
                 weights.data(),
                 scales.data());
    }
  }

  PackedMatrix Packed() const {
    return {form, outputs, groups, weights.data(), scales.data()};
  }

  WeightForm form;
  int64_t outputs;
  int64_t groups;
  std::vector<WeightGroup> values;
  std::vector<uint8_t> weights;
  std::vector<uint16_t> scales;
};

class KernelsLinearTest : public KernelsTest {
 protected:
  uint16_t RandomHalf() {
    switch (Uniform(0, 9)) {
      case 0:
        return 0;
      case 1:
        return static_cast<uint16_t>(Uniform(1, 1023));  // Subnormal.
      case 2:
        return 0x7bff;  // 65504, the largest.
      default:
        return FloatToHalf(0.01f * static_cast<float>(Uniform(1, 1000)));
    }
  }

  float RandomScale() { return 0.001f * static_cast<float>(Uniform(1, 1000)); }

  Matrix RandomMatrix(WeightForm form, int64_t outputs, int64_t groups) {
    Matrix matrix(form, outputs, groups);
    const bool int8 = form == WeightForm::kInt8;
    const int least = int8 ? -127 : 0;
    const int most = int8 ? 127 : 15;
    for (WeightGroup& group : matrix.values) {
      const int kind = Uniform(0, 5);
      for (int8_t& value : group.values) {
        const int extreme = Uniform(0, 1) == 0 ? least : most;
        value = static_cast<int8_t>(kind == 0   ? most
                                    : kind == 1 ? least
                                    : kind == 2 ? extreme
                                                : Uniform(least, most));
      }
      group.scale = RandomHalf();
      group.minimum =
          int8 ? uint16_t{0}
               : static_cast<uint16_t>(RandomHalf() | (Uniform(0, 1) << 15));
    }
    matrix.Pack();
    return matrix;
  }

  // Rows as quantising leaves them, with extreme ones among them.
  QuantizedMemory RandomRows(int64_t rows, int64_t groups) {
    QuantizedMemory x(rows, groups);
    for (QuantizedGroup& group : x.all) {
      const int kind = Uniform(0, 7);
      for (int8_t& value : group.values) {
        const int extreme = Uniform(0, 1) == 0 ? 127 : -127;
        value = static_cast<int8_t>(kind == 0   ? 127
                                    : kind == 1 ? -127
                                    : kind == 2 ? extreme
                                    : kind == 3 ? 0
                                                : Uniform(-127, 127));
      }
      switch (Uniform(0, 60)) {
        case 0:  // What was no number.
          group.scale = kNan;
          break;
        case 1:  // The largest and the least that quantising gives.
          group.scale = std::numeric_limits<float>::max() / 127;
          break;
        case 2:
          group.scale = 0x1p-100f / 127;
          break;
        default:
          group.scale = kind == 3 ? 0.0f : RandomScale();
      }
      SetSums(&group);
    }
    return x;
  }

  // One output of one row, as the recipe says.
  static float PlainProduct(const Matrix& matrix,
                            int64_t output,
                            const QuantizedMemory& x,
                            int64_t row) {
    float acc = 0;
    for (int64_t g = 0; g < matrix.groups; ++g) {
      const WeightGroup& w = matrix.At(output, g);
      const QuantizedGroup& v = x.At(row, g);
      int32_t sum = 0;
      for (int i = 0; i < kGroupSize; ++i) sum += w.values[i] * v.values[i];
      acc = std::fma(
          static_cast<float>(sum), HalfToFloat(w.scale) * v.scale, acc);
      if (matrix.form == WeightForm::kInt4) {
        acc = std::fma(HalfToFloat(w.minimum), v.scaled_sum, acc);
      }
    }
    return acc;
  }

  // Computes blocks [first, end) into `before`, and compares all of it.
  void Check(const Matrix& matrix,
             QuantizedMemory& x,
             int rows,
             int64_t first,
             int64_t end,
             bool add) {
    const int64_t stride = matrix.outputs + Uniform(0, 20);
    std::vector<float> got(static_cast<size_t>(rows * stride), kUntouched);
    if (add) {
      for (float& y : got) y = 0.01f * static_cast<float>(Uniform(-999, 999));
    }
    std::vector<float> want = got;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t o = first * kBlockOutputs;
           o < std::min(end * kBlockOutputs, matrix.outputs);
           ++o) {
        const float product = PlainProduct(matrix, o, x, row);
        float& y = want[static_cast<size_t>(row * stride + o)];
        y = add ? y + product : product;
      }
    }
    kernels_->linear({.matrix = matrix.Packed(),
                      .x = x.View(),
                      .rows = rows,
                      .y = got.data(),
                      .y_stride = stride,
                      .add = add},
                     first,
                     end);
    ASSERT_TRUE(AllSame(got, want))
        << rows << " rows, " << matrix.outputs << " outputs, " << matrix.groups
        << " groups, blocks " << first << " to " << end;
  }
};

TEST_P(KernelsLinearTest, MultipliesAsTheRecipeSays) {
  for (int step = 0; step < 160; ++step) {
    const WeightForm form =
        step % 2 == 0 ? WeightForm::kInt8 : WeightForm::kInt4;
    const int64_t outputs = step < 40 ? step + 1 : Uniform(1, 150);
    const int rows = step % 40 + 1;
    const Matrix matrix = RandomMatrix(form, outputs, Uniform(1, 7));
    QuantizedMemory x = RandomRows(rows, matrix.groups);
    const int blocks = static_cast<int>((outputs + 15) / 16);
    const int first = step % 3 == 0 ? 0 : Uniform(0, blocks);
    const int end = step % 3 == 0 ? blocks : Uniform(first, blocks);
    ASSERT_NO_FATAL_FAILURE(
        Check(matrix, x, rows, first, end, Uniform(0, 1) == 1));
  }
}

// The largest sums that there are: each must keep all of its bits.
TEST_P(KernelsLinearTest, NothingSaturates) {
  for (const WeightForm form : {WeightForm::kInt8, WeightForm::kInt4}) {
    for (const int value : {127, -127}) {
      for (const int weight : {127, -127}) {
        Matrix matrix(form, 16, 2);
        for (WeightGroup& group : matrix.values) {
          for (int8_t& w : group.values) {
            w = static_cast<int8_t>(form == WeightForm::kInt8 ? weight
                                    : weight > 0              ? 15
                                                              : 0);
          }
          group.scale = 0x3c00;  // 1
          group.minimum = 0;
        }
        matrix.Pack();
        QuantizedMemory x(1, 2);
        for (QuantizedGroup& group : x.all) {
          std::fill(std::begin(group.values),
                    std::end(group.values),
                    static_cast<int8_t>(value));
          group.scale = 1.0f;
          SetSums(&group);
        }
        std::vector<float> got(16);
        kernels_->linear({.matrix = matrix.Packed(),
                          .x = x.View(),
                          .rows = 1,
                          .y = got.data(),
                          .y_stride = 16,
                          .add = false},
                         0,
                         1);
        const int sum = 64 * value * matrix.values[0].values[0];
        EXPECT_EQ(got, std::vector<float>(16, static_cast<float>(sum)));
      }
    }
  }
}

// Wider than any piece that a kernel might cut its input into.
TEST_P(KernelsLinearTest, ALongRowIsSummedInOrder) {
  for (const WeightForm form : {WeightForm::kInt8, WeightForm::kInt4}) {
    const Matrix matrix = RandomMatrix(form, 33, 150);
    QuantizedMemory x = RandomRows(9, matrix.groups);
    // Without what is infinite or no number, which would hide the rest.
    for (QuantizedGroup& group : x.all) {
      group.scale = RandomScale();
      SetSums(&group);
    }
    for (const int rows : {1, 9}) {
      ASSERT_NO_FATAL_FAILURE(Check(matrix, x, rows, 0, 3, false));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, KernelsLinearTest, AllIsas(), IsaTestName);

}  // namespace
}  // namespace specwire
