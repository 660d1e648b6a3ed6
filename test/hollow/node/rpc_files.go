// SPDX-License-Identifier: Apache-2.0

package node

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// files are the few files that someone may want to read off a node, with their contents.
func (b *boot) files() map[string]string {
	b.mu.Lock()
	hostname := b.hostname
	b.mu.Unlock()
	return map[string]string{
		"/proc/sys/kernel/random/boot_id": b.id + "\n",
		"/proc/sys/kernel/hostname":       hostname + "\n",
		"/proc/uptime":                    fmt.Sprintf("%.2f %.2f\n", time.Since(b.started).Seconds(), time.Since(b.started).Seconds()),
		"/proc/cmdline":                   "talos.platform=metal console=tty0\n",
		"/proc/version":                   "Linux version 6.18.0-talos\n",
		"/etc/machine-id":                 b.machineID() + "\n",
		"/etc/os-release":                 fmt.Sprintf("NAME=\"Talos\"\nID=talos\nVERSION_ID=%s\nPRETTY_NAME=\"Talos (%s)\"\n", b.slot.Version, b.slot.Version),
	}
}

// machineID is derived from the node's identity, so that it changes with a wipe only.
func (b *boot) machineID() string {
	sum := sha256.Sum256([]byte(b.identityNow()))
	return hex.EncodeToString(sum[:16])
}

// folders are the parents of all files.
func folders(files map[string]string) map[string]bool {
	list := map[string]bool{"/": true, "/var": true, "/system": true, "/dev": true, "/sys": true}
	for name := range files {
		for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
			list[dir] = true
		}
	}
	return list
}

// Read implements MachineService.
func (s *machineService) Read(in *machine.ReadRequest, srv machine.MachineService_ReadServer) error {
	files := s.boot.files()
	content, there := files[in.GetPath()]
	if there {
		_, err := io.Copy(&chunkWriter{send: srv.Send}, strings.NewReader(content))
		return err
	}
	if folders(files)[in.GetPath()] {
		return errors.New("path must be a regular file")
	}
	return status.Errorf(codes.NotFound, "stat %s: no such file or directory", in.GetPath())
}

// List implements MachineService.
func (s *machineService) List(in *machine.ListRequest, srv machine.MachineService_ListServer) error {
	root := path.Clean("/" + in.GetRoot())
	files := s.boot.files()
	dirs := folders(files)
	content, isFile := files[root]
	if !isFile && !dirs[root] {
		return fmt.Errorf("lstat %s: no such file or directory", root)
	}
	if isFile {
		return srv.Send(&machine.FileInfo{Name: root, RelativeName: path.Base(root), Size: int64(len(content)), Mode: 0o444})
	}
	depth := 1
	if in.GetRecurse() {
		depth = int(in.GetRecursionDepth())
	}
	if err := srv.Send(&machine.FileInfo{Name: root, RelativeName: ".", IsDir: true, Mode: 0o755}); err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(files))
	names = append(names, slices.Collect(maps.Keys(dirs))...)
	slices.Sort(names)
	for _, name := range names {
		relative := strings.TrimPrefix(strings.TrimPrefix(name, root), "/")
		if name == root || !strings.HasPrefix(name, strings.TrimSuffix(root, "/")+"/") || (depth > 0 && strings.Count(relative, "/") >= depth) {
			continue
		}
		info := &machine.FileInfo{Name: name, RelativeName: relative, Size: int64(len(files[name])), Mode: 0o444, IsDir: dirs[name], Modified: s.boot.started.Unix()}
		if err := srv.Send(info); err != nil {
			return err
		}
	}
	return nil
}

// DiskUsage implements MachineService; without paths the stream just ends.
func (s *machineService) DiskUsage(in *machine.DiskUsageRequest, srv machine.MachineService_DiskUsageServer) error {
	files := s.boot.files()
	for _, name := range in.GetPaths() {
		root := path.Clean("/" + name)
		info := &machine.DiskUsageInfo{Name: root, RelativeName: root}
		if size, there := files[root]; there {
			info.Size = int64(len(size))
		} else if !folders(files)[root] {
			info.Error = fmt.Sprintf("lstat %s: no such file or directory", root)
		}
		if err := srv.Send(info); err != nil {
			return err
		}
	}
	return nil
}

// Copy implements MachineService: a gzipped tar of what is below a path.
func (s *machineService) Copy(in *machine.CopyRequest, srv machine.MachineService_CopyServer) error {
	root := path.Clean(in.GetRootPath())
	if !path.IsAbs(root) {
		return fmt.Errorf("path is not absolute %v", root)
	}
	files := s.boot.files()
	_, isFile := files[root]
	if !isFile && !folders(files)[root] {
		return s.boot.streamError(srv.Send, fmt.Errorf("lstat %s: no such file or directory", root))
	}
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	archive := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if name != root && !strings.HasPrefix(name, strings.TrimSuffix(root, "/")+"/") {
			continue
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(name, "/"), Size: int64(len(files[name])), Mode: 0o444, ModTime: s.boot.started}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := io.WriteString(archive, files[name]); err != nil {
			return err
		}
	}
	if err := errors.Join(archive.Close(), zipped.Close()); err != nil {
		return err
	}
	_, err := (&chunkWriter{send: srv.Send}).Write(out.Bytes())
	return err
}

// streamError tells what went wrong in the middle of a stream of data.
func (b *boot) streamError(send func(*common.Data) error, err error) error {
	if b.profile.StreamErrorsInData {
		return send(&common.Data{Metadata: &common.Metadata{Error: err.Error()}})
	}
	return err
}
