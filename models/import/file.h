// Moved to ir/file.h; stands here until the importers in flight include that.
#ifndef QUIRE_MODELS_IMPORT_FILE_H_
#define QUIRE_MODELS_IMPORT_FILE_H_

#include "ir/file.h"  // IWYU pragma: export

#endif  // QUIRE_MODELS_IMPORT_FILE_H_
