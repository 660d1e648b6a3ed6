// SPDX-License-Identifier: Apache-2.0

// Package e2e tests all of Ichor together, on one local stack per run: what a newcomer, an operator and an impostor
// meet. Its tests run one after the other and use up the machines of the fleet. After each story every operation is held
// against its plan: planEqualsDeed.
//
// What goes wrong with etcd, control planes, upgrades and other operations, and with disks that are wiped, and where it is
// shown that it doesn't here. Stories are those of TestStack; what is marked "harness" runs the real controller against machines
// in memory, and has no end-to-end test beside it.
//
//	the number of members is no gate, healthy  stories removedMachines, lostQuorum; controllers/machine:
//	voters are                                 TestAControlPlaneLeavesOnlyIfEtcdKeepsItsQuorum; controllers/operation:
//	                                           TestTwoControlPlanesKeepTheirQuorum
//	nothing is done to a voter while there is  story moreNodes (they join one at a time); harness:
//	a learner, however long that takes         TestWhatKeepsAMachineFromGoingDown, TestControlPlanesJoinOneAtATime
//	etcd is bootstrapped once                  test/crash: TestKilled
//	a control plane whose etcd died is let go  harness: TestAControlPlaneWhoseEtcdIsNoGoodIsTakenOutByAnother; story
//	                                           removedMachines replaces one whose etcd lives
//	a whole cluster is destroyed: workers,     test/crash, long form: TestKilled; harness:
//	                                           TestAClusterIsDestroyedWorkersFirstAndThenControlPlanesOneByOne,
//	then control planes one by one, the last   TestTheLastControlPlaneOfADestroyedClusterGoesUngracefully
//	ungracefully
//	a cluster is let go with not one write     story detachedStack
//	checks, pulls on all machines, and only    stories upgradedTalos, wrongUpgrades (an image that is missing)
//	then the first is cordoned
//	evictions, budgets; what is held is named  stories drainedWorker, removedMachines
//	no second installation, no lost reboot; a  stories upgradedTalos (the controller is killed while it installs),
//	reboot by hand is the one that was meant   wrongUpgrades
//	done is what the machine says; the old     story wrongUpgrades
//	version, or other extensions, stop it, and
//	the next machine isn't begun
//	the next control plane only when the       stories rolledOut, kubernetesUpgraded; harness:
//	components of the last one are Ready       TestWhatAKubernetesUpgradeWaitsFor
//	removed flags and gates, skew in both      pkg/kubernetesupgrade; harness: TestAKubernetesUpgradeThatCantBe
//	directions, before anything is begun
//	several reasons to reboot at once          story severalReasons
//	a cluster of one machine is upgraded, and  harness: TestTheOnlyMachineOfAClusterUpgrades; test/operations (nothing is
//	the controller with it                     evicted from the only Node)
//	machines that are off on purpose           story poweredOff
//	the disk that was chosen is installed on,  stories newcomer, otherMedia, rackFromFile; harness:
//	and compared by its serial                 TestTheMachineRunsFromAnotherDisk
//	what is wiped and kept is listed first,    stories removedMachines, reclaimedMachine
//	and no disk goes that nobody named
package e2e
