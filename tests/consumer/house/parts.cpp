// Beside the user's program: a header of each part that was asked for, and a call of the library
// that it needs, unless that is headers alone. That all headers compile, and link from several
// units, is shown by cmake/headers_alone.cmake.
#include <cstdlib>

#ifdef WITH_ONEDNN
#include "shardwise/backend/onednn/onednn.hpp"
#endif
#ifdef WITH_CBLAS
#include "shardwise/backend/cblas/cblas.hpp"
#endif
#ifdef WITH_CHECKPOINT
#include "shardwise/checkpoint/tensor_files.hpp"
#endif
#ifdef WITH_MPI
#include "shardwise/comm/mpi_ranks.hpp"
#endif
#ifdef WITH_NCCL
#include "shardwise/comm/nccl.hpp"
#endif

namespace {

/// Whether all parts answer as they must.
bool use_parts() {
#ifdef WITH_ONEDNN
  const shardwise::OneDnn onednn;
#endif
#ifdef WITH_CBLAS
  if (cblas_ddot(0, nullptr, 1, nullptr, 1) != 0) return false;
#endif
#ifdef WITH_MPI
  int version = 0, subversion = 0;
  MPI_Get_version(&version, &subversion);
  if (version < 3) return false;
#endif
#ifdef WITH_NCCL
  int nccl = 0;
  if (ncclGetVersion(&nccl) != ncclSuccess || nccl < 21801) return false;
#endif
  return true;
}

[[maybe_unused]] const bool used = use_parts() || (std::abort(), false);

}  // namespace
