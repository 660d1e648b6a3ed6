// SPDX-License-Identifier: Apache-2.0

package slots

// rules says which rules of the protocol are left out; they have the names of the package comment. The zero value is the
// whole protocol, and only this package's tests make another: they look for what goes wrong without a rule. (Rule "quorum"
// is in registryStore, "count" in the validation of TalosCluster, and "no release" is that nobody calls a release.)
type rules struct {
	noHostname, noSlotPerUID, noNewToken, noRename bool
	noVersion, noUID, noFinalObject, noClusterUID  bool
	noTouch, noToken                               bool
}
