// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"

	"github.com/siderolabs/talos/pkg/machinery/role"

	"maesh.dev/ichor/pkg/etcdsnapshot"
	"maesh.dev/ichor/pkg/talos"
)

// Taken is what "ichor --direct snapshot -o json" prints.
type Taken struct {
	// File is where the snapshot is.
	File string `json:"file"`
	// Member is whose database it is, Address where that runs.
	Member  string `json:"member"`
	Address string `json:"address"`
	// Quorum tells whether etcd could still decide when the snapshot was taken: without one, what other members
	// committed later may be missing.
	Quorum Quorum `json:"quorum"`

	*etcdsnapshot.Summary
}

// Snapshots takes snapshots.
type Snapshots struct {
	Session *Session
	// Progress is told how many bytes came, Retry that another member is tried and why.
	Progress func(member *Member, bytes int64)
	Retry    func(member *Member, err error)
}

// Take takes a snapshot into a file: of the member that has applied the most and, if that fails, of the next. With from,
// a name or an address, of that member only.
func (s *Snapshots) Take(ctx context.Context, report *Report, from, path string) (*Taken, error) {
	members := Candidates(&report.Etcd)
	if from != "" {
		members = withName(members, from)
		if len(members) == 0 {
			return nil, fmt.Errorf("no member of etcd %q answers that a snapshot could be taken from", from)
		}
	}
	if len(members) == 0 {
		return nil, errors.New("no member of etcd answers, so there is nothing to take a snapshot from; `status` says what to do next")
	}
	// os:etcd:backup is the least role that may take a snapshot; it may read the member's status, and nothing else.
	credentials, err := s.Session.bundle.Credentials(s.Session.now(), role.EtcdBackup, credentialsTTL)
	if err != nil {
		return nil, err
	}
	var failed error
	for i := range members {
		member := &members[i]
		summary, err := etcdsnapshot.Save(ctx, path, func(ctx context.Context, to io.Writer) error {
			return s.stream(ctx, credentials, member, to)
		})
		if err == nil {
			return &Taken{File: path, Member: member.Name(), Address: member.Address, Quorum: report.Etcd.Quorum, Summary: summary}, nil
		}
		failed = fmt.Errorf("%s: %w", member.Name(), err)
		var local *fs.PathError
		if ctx.Err() != nil || errors.Is(err, etcdsnapshot.ErrExists) || errors.As(err, &local) {
			return nil, err // another member changes nothing about this
		}
		if i < len(members)-1 {
			s.Retry(member, err)
		}
	}
	return nil, failed
}

func withName(members []Member, name string) []Member {
	var out []Member
	for _, member := range members {
		if name == member.Hostname || name == member.Address || name == member.ID {
			out = append(out, member)
		}
	}
	return out
}

// stream copies a member's snapshot, after that very connection has shown that it leads to this member.
func (s *Snapshots) stream(ctx context.Context, credentials talos.Credentials, member *Member, to io.Writer) error {
	address, err := netip.ParseAddr(member.Address)
	if err != nil {
		return fmt.Errorf("the address %q of member %s is none", member.Address, member.Name())
	}
	dialCtx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	node, err := s.Session.dialer.DialConfigured(dialCtx, address, credentials)
	if err != nil {
		return err
	}
	defer node.Close() //nolint:errcheck // nothing was written
	statusCtx, cancelStatus := context.WithTimeout(ctx, nodeTimeout)
	defer cancelStatus()
	status, err := node.EtcdStatus(statusCtx)
	if err != nil {
		return err
	}
	if id := fmt.Sprintf("%x", status.MemberID); id != member.ID {
		return fmt.Errorf("member %s was at %s, and now member %s is: look again", member.ID, address, id)
	}
	_, err = node.EtcdSnapshot(ctx, &counter{to: to, tell: func(bytes int64) { s.Progress(member, bytes) }})
	return err
}

// counter tells how much was written.
type counter struct {
	to    io.Writer
	bytes int64
	tell  func(int64)
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.bytes += int64(n)
	c.tell(c.bytes)
	return n, err
}
