"""DomainNet: 345 kinds of things in six styles, split into the training and test parts that its makers list."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import NonNegativeInt, PositiveInt

from fedwca.core.remote_files import RemoteFile
from fedwca.datasets import DatasetSource, register
from fedwca.warn_caller import warn_caller

if TYPE_CHECKING:
    from fedwca.data import FederatedDataset
    from fedwca.datasets._domainnet_lists import ListedImage

CLASSES = """
    aircraft_carrier airplane alarm_clock ambulance angel animal_migration ant anvil apple arm asparagus axe backpack
    banana bandage barn baseball baseball_bat basket basketball bat bathtub beach bear beard bed bee belt bench bicycle
    binoculars bird birthday_cake blackberry blueberry book boomerang bottlecap bowtie bracelet brain bread bridge
    broccoli broom bucket bulldozer bus bush butterfly cactus cake calculator calendar camel camera camouflage campfire
    candle cannon canoe car carrot castle cat ceiling_fan cello cell_phone chair chandelier church circle clarinet clock
    cloud coffee_cup compass computer cookie cooler couch cow crab crayon crocodile crown cruise_ship cup diamond
    dishwasher diving_board dog dolphin donut door dragon dresser drill drums duck dumbbell ear elbow elephant envelope
    eraser eye eyeglasses face fan feather fence finger fire_hydrant fireplace firetruck fish flamingo flashlight
    flip_flops floor_lamp flower flying_saucer foot fork frog frying_pan garden garden_hose giraffe goatee golf_club
    grapes grass guitar hamburger hammer hand harp hat headphones hedgehog helicopter helmet hexagon hockey_puck
    hockey_stick horse hospital hot_air_balloon hot_dog hot_tub hourglass house house_plant hurricane ice_cream jacket
    jail kangaroo key keyboard knee knife ladder lantern laptop leaf leg light_bulb lighter lighthouse lightning line
    lion lipstick lobster lollipop mailbox map marker matches megaphone mermaid microphone microwave monkey moon
    mosquito motorbike mountain mouse moustache mouth mug mushroom nail necklace nose ocean octagon octopus onion oven
    owl paintbrush paint_can palm_tree panda pants paper_clip parachute parrot passport peanut pear peas pencil penguin
    piano pickup_truck picture_frame pig pillow pineapple pizza pliers police_car pond pool popsicle postcard potato
    power_outlet purse rabbit raccoon radio rain rainbow rake remote_control rhinoceros rifle river roller_coaster
    rollerskates sailboat sandwich saw saxophone school_bus scissors scorpion screwdriver sea_turtle see_saw shark sheep
    shoe shorts shovel sink skateboard skull skyscraper sleeping_bag smiley_face snail snake snorkel snowflake snowman
    soccer_ball sock speedboat spider spoon spreadsheet square squiggle squirrel stairs star steak stereo stethoscope
    stitches stop_sign stove strawberry streetlight string_bean submarine suitcase sun swan sweater swing_set sword
    syringe table teapot teddy-bear telephone television tennis_racquet tent The_Eiffel_Tower The_Great_Wall_of_China
    The_Mona_Lisa tiger toaster toe toilet tooth toothbrush toothpaste tornado tractor traffic_light train tree triangle
    trombone truck trumpet t-shirt umbrella underwear van vase violin washing_machine watermelon waterslide whale wheel
    windmill wine_bottle wine_glass wristwatch yoga zebra zigzag
"""


ADDRESS = "https://csr.bu.edu/ftp/visda/2019/multi-source"
REDRAWN = ("clipart", "painting")
"""Domains whose archive was published anew without duplicate images."""
CHECKSUMS = """
    clipart cd0d8f2d77a4e181449b78ed62bccf1e b4349693a7f9c05c53955725c47ed6cb f5ddbcfd657a3acf9d0f7da10db22565
    infograph 720380b86f9e6ab4805bb38b6bd135f8 379b50054f4ac2018dca4f89421b92d9 779626b50869edffe8ea6941c3755c71
    painting 1ae32cdb4f98fe7ab5eb0a351768abfd 7db0e7ca73ad9982f6e1f7f3ef372c0a 232b35dc53f26d414686ae579e38d9b5
    quickdraw bdc1b6f09f277da1a263389efe0c7a66 b732ced3939ac8efdd8c0a889dca56cc c1a828fdfe216fb109f1c0083a252c6f
    real dcc47055e8935767784b7162e7c7cca6 8ebf02c2075fadd564705f0dc7cd6291 6098816791c3ebed543c71ffa11b9054
    sketch 658d8009644040ff7ce30bb2e820850f 1233bd18aa9a8a200bf4cecf1c34ef3e d8a222e4672cfd585298aa14d02ea441
"""
"""MD5 of each domain's archive, of its list of training images and of its list of test images."""


def list_remote_files() -> tuple[RemoteFile, ...]:
    """Lists and archives of the cleaned version, on the server of its makers."""
    files = []
    for domain, archive_md5, *list_md5s in map(str.split, CHECKSUMS.strip().splitlines()):
        for part, md5 in zip(("train", "test"), list_md5s, strict=True):
            name = f"{domain}_{part}.txt"
            files.append(RemoteFile((f"{ADDRESS}/domainnet/txt/{name}",), name, md5=md5))
        url = f"{ADDRESS}/{'groundtruth/' if domain in REDRAWN else ''}{domain}.zip"
        files.append(RemoteFile((url,), f"{domain}.zip", md5=archive_md5, unpack="zip", unpacked_path=domain))
    return tuple(files)


def _list_paths(folder: Path, domain: str) -> list[Path]:
    return [folder / f"{domain}_{part}.txt" for part in ("train", "test")]


@register("domainnet")
class DomainNet(DatasetSource):
    """586,575 images of 345 classes in 6 domains, in the training and test parts that are published as lists.

    One class of painting has no image in the training part.
    """

    label = "DomainNet"
    domains = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
    classes = tuple(CLASSES.split())
    parts: ClassVar[dict[str, tuple[int, int]]] = {
        "clipart": (33525, 14604),
        "infograph": (36023, 15582),
        "painting": (50416, 21850),
        "quickdraw": (120750, 51750),
        "real": (120906, 52041),
        "sketch": (48212, 20916),
    }
    """Number of images of each domain's training and test part."""
    image_counts: ClassVar[dict[str, int]] = {domain: sum(numbers) for domain, numbers in parts.items()}
    downloads = list_remote_files()
    download_size = 17_500_000_000
    stretch = True  # to squares, as in SHOT and its successors
    licence = "non-commercial research"
    source_url = "https://ai.bu.edu/M3SDA/"
    layout = (
        "  <root>/domainnet/{clipart,infograph,painting,quickdraw,real,sketch}/<class>/<image>\n"
        "  <root>/domainnet/<domain>_{train,test}.txt, lines '<domain>/<class>/<image> <label>' (cleaned version)"
    )
    citation = "Peng et al.: Moment Matching for Multi-Source Domain Adaptation, ICCV 2019"

    images: PositiveInt | None = None
    """Most images taken of a domain, drawn at random, evenly from all classes as far as these go; unset: all."""
    seed: NonNegativeInt = 0
    """Decides which images are drawn."""

    def load(self, size: int = 32) -> FederatedDataset:
        """The listed images, read through memory maps; see `DatasetSource.load`."""
        import numpy as np

        from fedwca.data.archives import Archive
        from fedwca.data.dataset import sorted_classes
        from fedwca.data.decode_folders import decode_cached
        from fedwca.data.read_domains import assemble_dataset
        from fedwca.datasets._domainnet_lists import check_files

        archives = {}
        for domain, listed in self._listed().items():
            names = sorted_classes(image.title for image in listed)
            label_of = {name: label for label, name in enumerate(names)}
            labels = np.array([label_of[image.title] for image in listed], np.int64)
            part = np.array([image.part for image in listed], np.int64)
            folder = self.own_folder / domain
            check_files(listed, self.own_folder)
            decoded = decode_cached(folder, [image.file for image in listed], size, self.stretch)
            archives[domain] = Archive(decoded, labels, None, names, part)
        dataset = assemble_dataset(self.name, archives, self.classes, gaps=True)
        self.compare_with_published(dataset)
        return dataset

    def count_images(self) -> Mapping[str, int]:
        """Number of images of each domain, from the lists."""
        return {domain: len(listed) for domain, listed in self._listed().items()}

    def has_domain(self, domain: str, folder: Path) -> bool:
        """Whether a folder holds a domain's images and both its lists, without which they are not read."""
        return (folder / domain).is_dir() and all(path.is_file() for path in _list_paths(folder, domain))

    def _listed(self) -> dict[str, list[ListedImage]]:
        """Images to read of each domain whose folder and lists are there.

        Raises:
            DatasetMissing: fewer than two domains have a folder and both lists.
        """
        from fedwca.data.dataset import DatasetWarning
        from fedwca.datasets._domainnet_lists import draw_balanced, read_lists

        place, images_by_domain, missing_paths = self.own_folder, {}, []
        for index, domain in enumerate(self.domains):
            missing = [path.name for path in _list_paths(place, domain) if not path.is_file()]
            has_images = (place / domain).is_dir()
            if not missing and not has_images:
                sentence = f"{place} has lists of {domain}, but no folder {domain}; the domain is left out"
                warn_caller(sentence, DatasetWarning)
            if missing or not has_images:
                missing_paths += [*missing, *([] if has_images else [domain])]
                continue
            images_by_domain[domain] = draw_balanced(read_lists(place, domain), self.images, [self.seed, index])
        if len(images_by_domain) < 2:
            raise self.missing_files_error(f"there is no {', '.join(missing_paths)}")
        return images_by_domain
