// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/status"

	"maesh.dev/ichor/test/hollow/hollowtest"
	"maesh.dev/ichor/test/hollow/profile"
)

// listed tells what a list gives, as the recording does: count and ids, cut at its width, or the refusal.
func listed(ctx context.Context, c *client.Client, namespace, kind string) string {
	list, err := c.COSI.List(ctx, resource.NewMetadata(namespace, kind, "", resource.VersionUndefined))
	if err != nil {
		s := status.Convert(err)
		return "ERR " + s.Code().String() + ": " + s.Message()
	}
	var ids []string
	for _, r := range list.Items {
		ids = append(ids, r.Metadata().ID())
	}
	slices.Sort(ids)
	text := strings.Join(ids, ",")
	if len(text) > idsWidth {
		text = text[:idsWidth]
	}
	return fmt.Sprintf("%d %s", len(ids), text)
}

// idsWidth is where the recording cuts the list of ids.
const idsWidth = 80

func compareLists(t *testing.T, c *client.Client, column int, differences map[string]string) {
	t.Helper()
	rows, err := table("cosi.md", 5)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*hollowtest.Patience)
	defer cancel()
	for _, row := range rows {
		got := strings.TrimSpace(listed(ctx, c, row[1], row[0]))
		want := strings.TrimSpace(row[column])
		reason, isListed := differences[row[0]]
		switch {
		case isListed && got == want:
			t.Errorf("%s: a difference is listed (%s), but the list is the recorded one", row[0], reason)
		case !isListed && got != want:
			t.Errorf("%s:\n got %s\nwant %s", row[0], got, want)
		}
	}
}

func TestEveryTypeIsDefinedAsOnARealNode(t *testing.T) {
	t.Parallel()
	compareTypes(t, profile.DefaultVersion)
}

// compareTypes compares the types that are defined with the recorded ones, less and more those that the version differs by.
func compareTypes(t *testing.T, talosVersion string) {
	t.Helper()
	rows, err := table("cosi.md", 5)
	if err != nil {
		t.Fatal(err)
	}
	version, err := profile.ForVersion(talosVersion)
	if err != nil {
		t.Fatal(err)
	}
	rows = slices.DeleteFunc(rows, func(row []string) bool { return slices.Contains(version.MissingTypes, row[0]) })
	for _, extra := range version.ExtraTypes {
		sensitivity := "-"
		if extra.Sensitive {
			sensitivity = "sensitive"
		}
		rows = append(rows, []string{extra.Type, extra.Namespace, sensitivity, "", ""})
	}
	c := hollowtest.Insecure(t, maintenanceOf(t, talosVersion))
	ctx, cancel := context.WithTimeout(t.Context(), 2*hollowtest.Patience)
	defer cancel()
	definitions, err := safe.StateListAll[*meta.ResourceDefinition](ctx, c.COSI)
	if err != nil {
		t.Fatal(err)
	}
	defined := map[string]meta.ResourceDefinitionSpec{}
	for d := range definitions.All() {
		defined[d.TypedSpec().Type] = *d.TypedSpec()
	}
	for _, row := range rows {
		d, ok := defined[row[0]]
		if !ok {
			t.Errorf("%s: not defined", row[0])
			continue
		}
		delete(defined, row[0])
		sensitivity := "-"
		if d.Sensitivity == meta.Sensitive {
			sensitivity = "sensitive"
		}
		if d.DefaultNamespace != row[1] || sensitivity != row[2] {
			t.Errorf("%s: namespace %s, %s; want %s, %s", row[0], d.DefaultNamespace, sensitivity, row[1], row[2])
		}
	}
	for kind := range defined {
		t.Errorf("%s: no real node has it", kind)
	}
}

func TestEveryListInMaintenanceIsThatOfARealNode(t *testing.T) {
	t.Parallel()
	compareLists(t, hollowtest.Insecure(t, maintenance(t)), 3, maintenanceLists)
}

func TestEveryListOfAConfiguredNodeIsThatOfARealNode(t *testing.T) {
	t.Parallel()
	c, n := unsettled(t)
	compareLists(t, c.Connect(n, role.Admin), 4, configuredLists)
}
