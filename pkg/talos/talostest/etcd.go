// SPDX-License-Identifier: Apache-2.0

package talostest

import (
	"context"
	"errors"
	"io"

	"maesh.dev/ichor/pkg/talos"
)

var (
	errNoEtcd   = errors.New("etcd is not running")
	errNoLeader = errors.New("etcdserver: no leader")
)

// Survey implements talos.ConfiguredNode.
func (c *connection) Survey(context.Context) (*talos.Survey, error) {
	var survey talos.Survey
	if err := c.do(func(s *State) error { survey = s.Survey; return nil }); err != nil {
		return nil, err
	}
	return &survey, nil
}

func (c *connection) EtcdMembers(context.Context) ([]talos.EtcdMember, error) {
	var members []talos.EtcdMember
	err := c.do(func(s *State) error {
		switch {
		case len(s.Members) == 0:
			return errNoEtcd
		case s.NoQuorum:
			return errNoLeader
		}
		members = s.Members
		return nil
	})
	return members, err
}

func (c *connection) EtcdStatus(context.Context) (talos.EtcdStatus, error) {
	var status talos.EtcdStatus
	err := c.do(func(s *State) error {
		if s.Etcd == nil {
			return errNoEtcd
		}
		status = *s.Etcd
		return nil
	})
	return status, err
}

func (c *connection) EtcdAlarms(context.Context) ([]talos.EtcdAlarm, error) {
	var alarms []talos.EtcdAlarm
	err := c.do(func(s *State) error {
		switch {
		case s.Etcd == nil:
			return errNoEtcd
		case s.NoQuorum:
			return errNoLeader
		}
		alarms = s.Alarms
		return nil
	})
	return alarms, err
}

func (c *connection) EtcdSnapshot(_ context.Context, to io.Writer) (int64, error) {
	var database []byte
	var broken error
	if err := c.do(func(s *State) error { database, broken = s.Database, s.SnapshotErr; return nil }); err != nil {
		return 0, err
	}
	n, err := to.Write(database)
	if err != nil {
		return int64(n), err
	}
	return int64(n), broken
}
