// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/direct"
	"maesh.dev/ichor/pkg/etcdsnapshot"
)

// drawEvery is the time between two looks of a person at the progress, tellEvery that between two lines of a log.
const (
	drawEvery = 200 * time.Millisecond
	tellEvery = 10 * time.Second
)

// NewSnapshot makes "ichor snapshot".
func NewSnapshot(env *cli.Env, options *direct.Options) *cobra.Command {
	var format direct.Format
	var from string
	cmd := direct.Only(&cobra.Command{
		Use:   "snapshot [FILE]",
		Short: "Save a snapshot of etcd to a file, over Talos alone",
		Long: `Save a snapshot of etcd, of the member that has applied the most: it works without a quorum and without the Kubernetes
API, and only reads. The file gets its name once it is whole and checked: the checksum that etcd sends, the structure of
the database, every key. It is never written over, and only you may read it: it holds every Secret of the cluster.

It needs the cluster's secrets bundle, and makes itself certificates from it for a quarter of an hour: os:reader to look
which members there are, os:etcd:backup to take the snapshot. Without FILE it is etcd-TIME.db in the current folder.`,
		Example: cli.Examples(env, `
			ichor --direct --bundle bundle.yaml --nodes 10.0.0.11,10.0.0.12,10.0.0.13 snapshot
			# of one member, to a file on another disk
			ichor --direct --bundle bundle.yaml --nodes 10.0.0.11 snapshot --from cp-1 /mnt/usb/etcd.db`),
		Args: cli.AtMost(1, "one file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := format.Check(); err != nil {
				return err
			}
			path := "etcd-" + env.Now().UTC().Format("20060102T150405Z") + ".db"
			if len(args) > 0 {
				path = args[0]
			}
			return takeSnapshot(cmd.Context(), env, options, from, path, format)
		},
	})
	format.AddFlag(cmd, "json or yaml: how to print what was saved; the snapshot itself goes to FILE.")
	cmd.Flags().StringVar(&from, "from", "", "Take it of this member, by hostname, address or id, instead of the most advanced one.")
	return cmd
}

func takeSnapshot(ctx context.Context, env *cli.Env, options *direct.Options, from, path string, format direct.Format) error {
	if _, err := os.Lstat(path); err == nil {
		return cli.WithCode(cli.ExitBlocked, fmt.Errorf("%s exists, and a snapshot replaces nothing; name another file", path))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	session, err := direct.Open(ctx, env, options)
	if err != nil {
		return err
	}
	report, err := session.Look(ctx)
	if err != nil {
		return err
	}
	if err := report.Failed(); err != nil {
		return err
	}
	progress := &progress{env: env}
	snapshots := &direct.Snapshots{
		Session:  session,
		Progress: progress.show,
		Retry: func(member *direct.Member, err error) {
			progress.end()
			env.Infof("%s gave no snapshot: %v; trying the next member", member.Name(), err)
		},
	}
	taken, err := snapshots.Take(ctx, report, from, path)
	progress.end()
	if errors.Is(err, etcdsnapshot.ErrExists) {
		return cli.WithCode(cli.ExitBlocked, err)
	}
	if err != nil {
		return err
	}
	return format.Print(env, taken, describe(taken))
}

func describe(taken *direct.Taken) string {
	text := fmt.Sprintf("%s: %s of %s (%s), revision %d, %d keys, hash %s\nsha256 %s\n",
		taken.File, humanize.IBytes(uint64(taken.Size)), taken.Member, taken.Address, taken.Revision, taken.Keys, taken.Hash, taken.SHA256)
	if taken.Quorum != direct.QuorumHeld {
		text += "etcd had no quorum: what other members committed last may be missing. Keep their disks.\n"
	}
	return text
}

// progress tells how much of a snapshot came: drawn over itself for a person, else a line now and then.
type progress struct {
	env    *cli.Env
	last   time.Time
	drawn  bool
	member string
}

func (p *progress) show(member *direct.Member, bytes int64) {
	if p.member != member.Name() {
		p.member, p.last = member.Name(), time.Now()
		p.env.Infof("taking a snapshot of %s, whose database has %s", member.Name(), humanize.IBytes(uint64(max(member.DBSize, 0))))
	}
	redraw := p.env.CanRedraw()
	if pause := time.Since(p.last); pause < drawEvery || !redraw && pause < tellEvery {
		return
	}
	p.last = time.Now()
	line := fmt.Sprintf("%s of about %s", humanize.IBytes(uint64(bytes)), humanize.IBytes(uint64(max(member.DBSize, bytes))))
	if redraw {
		fmt.Fprintf(p.env.ErrOut, "\r\x1b[K%s", line)
		p.drawn = true
		return
	}
	p.env.Infof("%s", line)
}

// end clears what was drawn.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprint(p.env.ErrOut, "\r\x1b[K")
		p.drawn = false
	}
}
