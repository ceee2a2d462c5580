#include "use_parts.hpp"

#include "everything.hpp"

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
#ifdef WITH_CHECKPOINT
  try {
    const shardwise::TensorFiles files("/nowhere");
    return false;
  } catch (const shardwise::data_error&) {
  }
#endif
#ifdef WITH_DATA
  try {
    shardwise::read_idx("/nowhere", 1);
    return false;
  } catch (const shardwise::data_error&) {
  }
#endif
  return true;
}
