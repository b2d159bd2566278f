#pragma once

#include <string>
#include <string_view>

#include "core/base/status.h"
#include "datasets/images/image.h"

// Readers of data sets whose files are arrays of images of one size.
namespace troop {

// Largest unpacked file of such a data set. Published ones are below 200 MB.
inline constexpr std::size_t kImageArrayBytesMax = std::size_t{4} << 30;

// Decodes the images and labels of an IDX pair (MNIST, http://yann.lecun.com/exdb/mnist):
// big-endian sizes, then u8 elements. images: [N, h, w] or [N, h, w, c]; labels: [N]. Appends to
// *set and raises *classes to the highest label + 1. Errors: kDataLoss: another type, sizes that
// differ from the file's, or different counts; kInvalidArgument: another size than *data already
// has.
Status AppendIdx(std::string_view images, std::string_view labels, ImageData* data, ImageSet* set);

// Decodes records of CIFAR's binary version (Krizhevsky 2009): label bytes, then the planes red,
// green and blue of 32 x 32. Appends to *set. label_bytes: 1 (CIFAR-10), or 2 (CIFAR-100: the
// coarse label, which is skipped, and the fine one). Errors: kDataLoss: not a multiple of a record,
// or a label >= data.classes.size().
Status AppendCifar(std::string_view bytes, int label_bytes, ImageData* data, ImageSet* set);

// Reads a folder of IDX files under MNIST's names: train-images-idx3-ubyte and
// train-labels-idx1-ubyte, and, if they exist, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte;
// each may end with .gz. The classes are named "0", "1", …. Blocks on the disk. Errors: kNotFound;
// those of AppendIdx.
Result<ImageData> ReadIdxFolder(const std::string& folder);
// Reads a folder of CIFAR-10 (data_batch_1.bin …, test_batch.bin, batches.meta.txt) or CIFAR-100
// (train.bin, test.bin, fine_label_names.txt). Blocks on the disk. Errors: kNotFound; those of
// AppendCifar.
Result<ImageData> ReadCifarFolder(const std::string& folder);

// True if the folder has the first file of either data set.
bool IsIdxFolder(const std::string& folder);
bool IsCifarFolder(const std::string& folder);

}  // namespace troop
