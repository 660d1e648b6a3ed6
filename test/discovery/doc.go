// SPDX-License-Identifier: Apache-2.0

// Package discovery runs the search for machines, and what configures them, over hollow machines and servers that aren't
// Talos, against a whole API server.
//
// What goes wrong with identities, and where it is shown that it doesn't here:
//
//	junk UUIDs, one UUID on two boards       TestAnOddNetwork; controllers/discovery: TestBoardsWithOneJunkUUIDStayTwoMachines,
//	                                         TestAUUIDThatALiveMachineHoldsIsDoubted, TestBothBoardsOfOneUUIDInTheFirstScan;
//	                                         pkg/apis/ichor/identity: TestIsJunkUUID, TestName, TestSameMachine
//	empty is not equal to empty              controllers/discovery: TestEmptyNeverEqualsEmpty; identity: TestOverlap
//	only permanent addresses of physical     pkg/talos: TestFactsOfARunningMachine, TestIdentityAndStage
//	links count
//	one machine at another address, another  TestWhatHappensToMachinesOverTime, TestApprovedMachinesSwapTheirAddresses;
//	machine at its old one                   controllers/discovery: TestAMachineThatMovesStaysTheSame,
//	                                         TestATakenAddressMovesNothing, TestALeaseThatGoesToAnotherMachine,
//	                                         TestMachinesThatSwapTheirAddresses
//	two addresses, a proxy, a double         TestAnOddNetwork; controllers/discovery: TestAMachineAtTwoAddressesIsOne,
//	                                         TestAMachineThatDoesntKnowAllItsAddressesStaysWhereItIs,
//	                                         TestTwoMachinesThatClaimToBeOne
//	scanning again writes nothing            TestAnOddNetwork, and nearly every test in controllers/discovery
//	a NIC or a board was exchanged           TestWhatHappensToMachinesOverTime; controllers/discovery:
//	                                         TestAnExchangedBoardIsDoubtedAndNamesTheOldOne, TestAPersonSaysThatItIsTheSame
//	the declared address is dialled only     controllers/machine: TestTheDeclaredAddressIsDialledOnlyOnceItWasSet
//	once it was set
//	the answer of an apply, or half of its   TestTheAnswerOfAMachineIsLost; controllers/machine:
//	request, is lost                         TestKilledAnywhereAMachineIsConfiguredOnce, TestWhatTheMachineAnswers,
//	                                         TestBackInMaintenanceBeforeItWasInstalled
//	the identity is read on the connection   TestTheAnswerOfAMachineIsLost; controllers/machine: TestNothingIsSent,
//	that is written to                       TestAnImpostorOfALivingMachineGetsNothing
package discovery
