// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"testing"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"google.golang.org/protobuf/encoding/protowire"

	cosi "github.com/cosi-project/runtime/api/v1alpha1"
)

// later is a resource as a later Talos sends it: with a field more than the machinery knows (1.14 has BIOSVersion and
// FirmwareVersion).
func later(t *testing.T, r resource.Resource) *cosi.Resource {
	t.Helper()
	wrapped, err := protobuf.FromResource(r)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := wrapped.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	raw.Spec.ProtoSpec = protowire.AppendTag(raw.Spec.ProtoSpec, 99, protowire.BytesType)
	raw.Spec.ProtoSpec = protowire.AppendString(raw.Spec.ProtoSpec, "from the future")
	raw.Spec.YamlSpec += "fromTheFuture: \"yes\"\n"
	return raw
}

func TestFieldsOfALaterTalosDoNotHideTheOthers(t *testing.T) {
	t.Parallel()
	system := hardware.NewSystemInformation(hardware.SystemInformationID)
	system.TypedSpec().UUID, system.TypedSpec().SKUNumber = "4c4c4544-0051-3610-8052-b4c04f4c3132", "SKU"
	got, err := decode[*hardware.SystemInformation](later(t, system))
	if err != nil || *got.TypedSpec() != *system.TypedSpec() {
		t.Errorf("system information: %+v, %v; want %+v", got, err, system.TypedSpec())
	}
	disk := block.NewDisk(block.NamespaceName, "sda")
	disk.TypedSpec().Serial, disk.TypedSpec().Size = "S1", 1<<40
	read, err := decode[*block.Disk](later(t, disk))
	if err != nil || read.TypedSpec().Serial != "S1" || read.TypedSpec().Size != 1<<40 {
		t.Errorf("disk: %+v, %v", read, err)
	}
}
