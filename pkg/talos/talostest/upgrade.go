// SPDX-License-Identifier: Apache-2.0

package talostest

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"maesh.dev/ichor/pkg/talos"
)

var _ talos.Upgrader = (*connection)(nil)

// HasImage tells whether an image was pulled.
func (c *connection) HasImage(_ context.Context, _ talos.ImageStore, reference string) (bool, error) {
	has := false
	err := c.do(func(s *State) error { has = s.Images[reference]; return nil })
	return has, err
}

// PullImage pulls an image.
func (c *connection) PullImage(_ context.Context, _ talos.ImageStore, reference string, progress func(string)) error {
	progress("0 of 1 layers")
	return c.do(func(s *State) error {
		s.Pulls++
		if s.PullErr != nil {
			return s.PullErr
		}
		images := map[string]bool{reference: true}
		for image := range s.Images {
			images[image] = true
		}
		s.Images = images
		return nil
	})
}

// Installing tells whether an installer runs.
func (c *connection) Installing(context.Context) (bool, error) {
	runs := false
	err := c.do(func(s *State) error {
		if s.Legacy {
			return talos.ErrNoLifecycle
		}
		runs = s.InstallerRuns
		return nil
	})
	return runs, err
}

// InstallerTrace is what the kernel log tells.
func (c *connection) InstallerTrace(context.Context, string) (talos.InstallerTrace, error) {
	trace := talos.TraceNone
	err := c.do(func(s *State) error { trace = s.Trace; return nil })
	return trace, err
}

// Install runs the installer of an image.
func (c *connection) Install(_ context.Context, image string, progress func(string)) (int32, error) {
	code := int32(0)
	err := c.do(func(s *State) error {
		switch {
		case s.Legacy:
			return talos.ErrNoLifecycle
		case s.InstallerRuns:
			return status.Error(codes.FailedPrecondition, "another installation/upgrade is already in progress")
		case s.InstallErr != nil:
			return s.InstallErr
		}
		s.Installs++
		progress("running Talos installer")
		if code = s.InstallExit; code != 0 {
			s.Trace = talos.TraceFailed
			return nil
		}
		s.Installed, s.Trace = image, talos.TraceSucceeded
		if s.LoseInstall {
			s.LoseInstall = false
			return status.Error(codes.Unavailable, "the connection broke")
		}
		return nil
	})
	return code, err
}

// UpgradeLegacy installs and reboots.
func (c *connection) UpgradeLegacy(_ context.Context, image string) error {
	return c.do(func(s *State) error {
		s.Installs++
		s.Reboots++
		s.Installed = image
		lose := s.LoseInstall
		s.LoseInstall = false
		if s.OnReboot != nil {
			s.OnReboot(s)
		}
		if lose {
			return status.Error(codes.Unavailable, "the connection broke")
		}
		return nil
	})
}
