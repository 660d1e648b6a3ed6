// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"fmt"

	"maesh.dev/ichor/pkg/talos"
)

// member is a member of the foreign cluster's etcd.
type member struct {
	talos.EtcdMember
	// own is true of the machine's own member.
	own bool
	// healthy is true of one that was asked, and follows a leader.
	healthy bool
}

// loses says, with the numbers, why a cluster's etcd would have no quorum without the machine; empty if it would. A member
// that doesn't vote may always go.
func loses(members []member) string {
	voters, healthy, votes := 0, 0, false
	for _, each := range members {
		switch {
		case each.own:
			votes = !each.Learner
		case each.Learner:
			return fmt.Sprintf("etcd member %s is a learner; wait until it votes", each.Hostname)
		default:
			voters++
			if each.healthy {
				healthy++
			}
		}
	}
	switch quorum := voters/2 + 1; {
	case !votes:
		return ""
	case voters == 0:
		return "it is the only etcd member of its cluster"
	case healthy < quorum:
		return fmt.Sprintf("%d of the %d etcd members that would stay are well, and %d are needed", healthy, voters, quorum)
	}
	return ""
}

// leaves tells whether the machine has a vote that it can give up by itself.
func leaves(members []member) bool {
	for _, each := range members {
		if each.own {
			return true
		}
	}
	return false
}
