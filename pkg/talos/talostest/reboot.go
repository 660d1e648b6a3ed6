// SPDX-License-Identifier: Apache-2.0

package talostest

import (
	"context"
	"errors"
)

// BootID implements talos.ConfiguredNode.
func (c *connection) BootID(context.Context) (string, error) {
	var id string
	err := c.do(func(s *State) error {
		if s.BootID == "" {
			return errors.New("not scripted")
		}
		id = s.BootID
		return nil
	})
	return id, err
}

// Reboot tells the machine to reboot.
func (c *connection) Reboot(_ context.Context, _ bool) error {
	return c.do(func(s *State) error {
		if s.RebootErr != nil {
			return s.RebootErr
		}
		s.Reboots++
		if s.OnReboot != nil {
			s.OnReboot(s)
		}
		return nil
	})
}

// EtcdForfeitLeadership hands the lead to the first other member.
func (c *connection) EtcdForfeitLeadership(context.Context) error {
	return c.do(func(s *State) error {
		if s.Etcd == nil {
			return errNoEtcd
		}
		for _, member := range s.Members {
			if member.ID != s.Etcd.MemberID {
				s.Etcd.Leader = member.ID
				return nil
			}
		}
		return errors.New("etcd has no other member")
	})
}
