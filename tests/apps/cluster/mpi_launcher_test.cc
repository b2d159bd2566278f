#include "apps/cluster/mpi_launcher.h"

#include <gtest/gtest.h>
#include <stdlib.h>

namespace troop {
namespace {

// Each test sets the variables of one launcher; those of the others stay unset.
class MpiTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) unsetenv(name);
  }
  void TearDown() override { SetUp(); }
  static constexpr const char* kNames[] = {"OMPI_COMM_WORLD_RANK",
                                           "OMPI_COMM_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                                           "PMIX_RANK",
                                           "PMIX_NAMESPACE",
                                           "PMI_RANK",
                                           "PMI_SIZE",
                                           "MPI_LOCALNRANKS",
                                           "SLURM_PROCID",
                                           "SLURM_NTASKS",
                                           "SLURM_JOB_ID",
                                           "OMPI_MCA_orte_ess_jobid",
                                           "OMPI_MCA_ess_base_jobid",
                                           "PMI_JOBID",
                                           "HYDI_CONTROL_FD"};
};

TEST_F(MpiTest, ReadsOpenMpiRankSizeAndLocalSize) {
  setenv("OMPI_COMM_WORLD_RANK", "2", 1);
  setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "3", 1);
  setenv("PMIX_NAMESPACE", "3251765249", 1);
  setenv("SLURM_PROCID", "0", 1);  // of the job in which mpirun was started
  setenv("SLURM_NTASKS", "1", 1);
  const auto place = FindMpiPlace();
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(place->rank, 2);
  EXPECT_EQ(place->size, 4);
  EXPECT_EQ(place->here, 3);
  EXPECT_EQ(place->launch, "3251765249");
}

TEST_F(MpiTest, ReadsHydraAndSrunRankAndSize) {
  setenv("PMI_RANK", "1", 1);
  setenv("PMI_SIZE", "2", 1);
  EXPECT_EQ(FindMpiPlace()->rank, 1);
  SetUp();
  setenv("SLURM_PROCID", "3", 1);
  setenv("SLURM_NTASKS", "8", 1);
  EXPECT_EQ(FindMpiPlace()->rank, 3);
  EXPECT_EQ(FindMpiPlace()->size, 8);
}

TEST_F(MpiTest, ReportsHowToStartWithoutLauncher) {
  const auto place = FindMpiPlace();
  ASSERT_FALSE(place.ok());
  EXPECT_NE(place.status().message().find("mpirun -n N troop train"), std::string::npos);
}

TEST_F(MpiTest, RejectsInvalidRank) {
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  for (const char* rank : {"2", "-1", "x", "1x", "99999999999"}) {
    setenv("OMPI_COMM_WORLD_RANK", rank, 1);
    EXPECT_FALSE(FindMpiPlace().ok()) << rank;
  }
}

}  // namespace
}  // namespace troop
