"""Office-Home: things from offices and homes as art, clip art, product pictures and photographs."""

from __future__ import annotations

from typing import ClassVar

from fedwca.core.remote_files import HubCopy
from fedwca.datasets import DatasetSource, register

CLASSES = """
    Alarm_Clock Backpack Batteries Bed Bike Bottle Bucket Calculator Calendar Candles Chair Clipboards Computer Couch
    Curtains Desk_Lamp Drill Eraser Exit_Sign Fan File_Cabinet Flipflops Flowers Folder Fork Glasses Hammer Helmet
    Kettle Keyboard Knives Lamp_Shade Laptop Marker Monitor Mop Mouse Mug Notebook Oven Pan Paper_Clip Pen Pencil
    Postit_Notes Printer Push_Pin Radio Refrigerator Ruler Scissors Screwdriver Shelf Sink Sneakers Soda Speaker Spoon
    TV Table Telephone ToothBrush Toys Trash_Can Webcam
"""


@register("office_home")
class OfficeHome(DatasetSource):
    """15,588 images of 65 classes in 4 domains; the official folder 'Real World' is real_world."""

    label = "Office-Home"
    domains = ("art", "clipart", "product", "real_world")
    classes = tuple(CLASSES.split())
    image_counts: ClassVar[dict[str, int]] = {"art": 2427, "clipart": 4365, "product": 4439, "real_world": 4357}
    downloads = (HubCopy("flwrlabs/office-home", "d430d44779e929b335be368ab3456484e5de36bb", domain="domain"),)
    download_size = 1_100_000_000
    stretch = True  # to squares, as in SHOT and its successors
    licence = "non-commercial research and education"
    source_url = "https://www.hemanthdv.org/officeHomeDataset.html"
    layout = "  <root>/office_home/{Art,Clipart,Product,Real World}/<class>/<image>"
    citation = "Venkateswara et al.: Deep Hashing Network for Unsupervised Domain Adaptation, CVPR 2017"
